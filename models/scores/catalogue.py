"""Every score by its id: the catalogue of this package and what other packages add.

A package adds a score by naming a `Score` subclass in its entry points:

    [project.entry-points."airlock.scores"]
    my_score = "my_package.scores:MyScore"
"""

import difflib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points

from models.errors import ScoreError

from .base import Score
from .families import CATALOGUE

GROUP = "airlock.scores"


@cache
def registry() -> dict[str, Score]:
    """All scores: built-in ones in the catalogue's order, then those of other packages by name."""
    scores = {score.id: score() for score in CATALOGUE}
    for score in _third_party():
        if score.id in scores:
            raise ScoreError(f"Two scores are called {score.id!r}: rename the one that comes from a package.")
        scores[score.id] = score
    return scores


def _third_party() -> Iterator[Score]:
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        try:
            loaded = entry.load()
        except Exception as fault:
            raise ScoreError(
                f"The score {entry.name} = {entry.value} of an installed package cannot be loaded ({fault}); repair or "
                "uninstall that package."
            ) from fault
        if not (isinstance(loaded, type) and issubclass(loaded, Score)):
            raise ScoreError(f"The entry point {entry.name} = {entry.value} in {GROUP} is not a Score class.")
        yield loaded()


def get_score(id: str) -> Score:
    """The score with this id, or one sentence with the ids there are."""
    scores = registry()
    if id in scores:
        return scores[id]
    close = difflib.get_close_matches(id, scores, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise ScoreError(f"There is no score {id!r}: {hint}the scores are {', '.join(scores)}.")


def possible_scores(has_features: bool, has_head: bool, has_labels: bool = True) -> list[str]:
    """The ids that a classifier with these signals can use."""
    have = {"logits", "fit"}
    have |= {"features"} if has_features else set()
    have |= {"head"} if has_head else set()
    have |= {"labels"} if has_labels else set()
    return [id for id, score in registry().items() if score.needs <= have]
