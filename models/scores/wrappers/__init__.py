"""Wrappers: changes of the signals that compose with the scores they are defined for."""

from models.errors import ScoreError

from .base import Wrapper
from .projection import Project
from .temperature import Temperature

WRAPPERS: dict[str, Wrapper] = {wrapper.id: wrapper for wrapper in (Project(), Temperature())}


def get_wrapper(id: str) -> Wrapper:
    """The wrapper with this id."""
    if id not in WRAPPERS:
        raise ScoreError(f"There is no wrapper {id!r}: the wrappers are {', '.join(WRAPPERS)}.")
    return WRAPPERS[id]


__all__ = ["WRAPPERS", "Wrapper", "get_wrapper"]
