"""Request ids: the caller's when well formed, so that nothing odd reaches logs, headers or the ledger."""

import random
import re

_WELL_FORMED = re.compile(r"[A-Za-z0-9._:-]{1,128}")

# Seeded by the operating system: ids need to differ, not to be secret.
_random = random.Random()


def well_formed(request_id: str) -> bool:
    """Whether an id may be taken over."""
    return _WELL_FORMED.fullmatch(request_id) is not None


def request_id(given: bytes | None) -> str:
    """The id that a caller sent, or 128 random bits of our own."""
    if given is not None and well_formed(text := given.decode("latin-1")):
        return text
    return f"{_random.getrandbits(128):032x}"
