"""The audit draw: a random share of items is picked for labelling, the same verdict for the same id every time."""

from hashlib import blake2b

_BYTES = 8
_WHOLE = 256**_BYTES


class Audit:
    """Draws items by a keyed hash of their id.

    The key is the ledger's own secret, so a caller cannot choose ids that escape the draw, while a repeated id
    gets the same answer in every worker and after every restart.
    """

    def __init__(self, salt: str, accepted: float, rejected: float) -> None:
        self._keyed = blake2b(digest_size=_BYTES, salt=bytes.fromhex(salt))
        self.shares = (rejected, accepted)
        self._marks = tuple(_mark(share) for share in self.shares)

    def draw(self, ids: list[str], accept: list[bool]) -> tuple[list[int], list[float]]:
        """For every item: 1 if it is drawn, else 0; and the probability it was drawn with."""
        copy, marks, shares = self._keyed.copy, self._marks, self.shares  # a copy is quicker than a new keyed hash
        flags = []
        for id, accepted in zip(ids, accept, strict=True):
            draw = copy()
            draw.update(id.encode())
            flags.append(1 if draw.digest() < marks[accepted] else 0)
        return flags, [shares[accepted] for accepted in accept]


def _mark(share: float) -> bytes:
    """Hashes below it, compared as bytes, are this share of all; nine bytes, so that all of them can be."""
    return int(share * _WHOLE).to_bytes(_BYTES) if share < 1 else b"\xff" * (_BYTES + 1)
