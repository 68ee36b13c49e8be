"""What a wrapper is: a fitted change of the signals before a score reads them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from models.scores.base import Inputs, Need, Score, ScoreParams, Theta
from models.scores.fitdata import FitData
from models.scores.namespace import Array, Namespace
from models.signals import Head


class Wrapper(ABC):
    """Like a score, its formula stands once: `apply` maps inputs to inputs in either namespace."""

    id: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[frozenset[Need]]
    Params: ClassVar[type[ScoreParams]]
    order: ClassVar[int]
    """Wrappers with a smaller order act first, however they were written."""

    @abstractmethod
    def check(self, score: Score, params: Any, data: FitData) -> None:
        """Refuse, in a sentence, a score that this wrapper is not defined for."""

    @abstractmethod
    def fit(self, data: FitData, params: Any, validation: FitData | None) -> tuple[Theta, ScoreParams]:
        """Statistics, and the parameters with fitted ones filled in."""

    @abstractmethod
    def apply(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: Any) -> Inputs:
        """The inputs that the wrapped score reads."""

    def head(self, head: Head | None, theta: Theta, params: Any) -> Head | None:
        """The head as the wrapped score sees it."""
        return head
