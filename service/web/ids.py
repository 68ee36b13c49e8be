"""Request ids: the caller's when well formed, so that nothing odd reaches logs, headers or the ledger."""

import random
import re
import time

_WELL_FORMED = re.compile(r"[A-Za-z0-9._:-]{1,128}")

# Seeded by the operating system: ids need to differ, not to be secret.
_random = random.Random()


def well_formed(request_id: str) -> bool:
    """Whether an id may be taken over."""
    return _WELL_FORMED.fullmatch(request_id) is not None


def request_id(given: bytes | None) -> str:
    """The id that a caller sent, or one of our own: 12 hex digits of milliseconds, then 80 random bits.

    Ids that rise with time keep the ledger's index growing at its end, which halves the cost of a row.
    """
    if given is not None and well_formed(text := given.decode("latin-1")):
        return text
    return f"{time.time_ns() // 1_000_000:012x}{_random.getrandbits(80):020x}"
