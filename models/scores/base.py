"""What a scoring function is: a formula, parameters, and how its statistics are fitted."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from .fitdata import FitData
from .namespace import Array, Namespace

Need = Literal["logits", "features", "head", "fit", "labels"]
"""What a score asks for: signals of the classifier, its head, fit data, labels of the fit data."""

Cost = Literal["low", "medium", "high"]
"""low: a few operations per class; medium: products with D × D matrices; high: a bank of training features."""


Role = Literal["s_id", "s_ood", "both"]

Lazy = Callable[[], Array]


class ScoreParams(BaseModel):
    """Parameters of a score. A field's `tune` metadata lists the values that tuning tries."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoParams(ScoreParams):
    """For scores that have nothing to set."""


class Theta(dict[str, np.ndarray]):
    """Fitted arrays by name.

    `notes` are sentences about what the fit had to do without; `settled` are parameters that the data decided.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray] | None = None,
        notes: tuple[str, ...] = (),
        settled: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(arrays or {})
        self.notes = notes
        self.settled = dict(settled or {})


class Inputs:
    """What a formula reads: logits `z` [B, C], features `h` [B, D] and their sizes.

    `z` and `h` may be given as functions, called when a formula first reads them: a wrapper then costs only what the
    wrapped score uses. Under the class-wise projection `z` holds the class-projected logits, and `classwise` tells
    what the class-projected features are to a table with one row per class.
    """

    def __init__(
        self, z: Array | Lazy, h: Array | Lazy, n_classes: int, dim: int, classwise: "Classwise | None" = None
    ) -> None:
        self._z = z
        self._h = h
        self.n_classes = n_classes
        self.dim = dim
        self.classwise = classwise

    @cached_property
    def z(self) -> Array:
        return self._z() if callable(self._z) else self._z

    @cached_property
    def h(self) -> Array:
        return self._h() if callable(self._h) else self._h


class Classwise(ABC):
    """One projected feature vector per class, ĥᶜ, without forming the [B, C, D] array of them."""

    @abstractmethod
    def dot(self, table: Array) -> Array:
        """[B, C] of t_c · ĥᶜ, for a table with one row t_c per class."""

    @abstractmethod
    def norm(self) -> Array:
        """[B, C] of ‖ĥᶜ‖."""


class Score(ABC):
    """A scoring function, oriented so that a higher value means more trustworthy.

    A subclass states its `id`, `needs` and parameters, computes its statistics in `fit` (numpy float64), and writes
    its formula once against the array namespace. `theta` in the formula holds the fitted arrays as operands.
    """

    id: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[frozenset[Need]]
    cost: ClassVar[Cost]
    role: ClassVar[Role] = "both"
    """What the score was made for; nothing stops its use for the other door."""
    Params: ClassVar[type[ScoreParams]] = NoParams
    projections: ClassVar[frozenset[str]] = frozenset()
    """Modes of projection filtering that are defined for this score (Table 3 of its paper)."""
    project_as: ClassVar[str | None] = None
    """The parameter that takes the mode, for a score that is itself a projection error."""
    fits_projected: ClassVar[bool] = True
    """Whether the statistics are taken after projection filtering, or of the original signals."""
    inexact: ClassVar[str | None] = None
    """Why the graph keeps only the ranking of the float64 definition; None where it equals it to 1e-6."""

    def fit(self, data: FitData, params: Any) -> Theta:
        """Statistics of the fit data that the formula needs."""
        return Theta()

    @abstractmethod
    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: Any) -> Array:
        """The score [B] of a batch."""


ALL_PROJECTIONS = frozenset({"global", "class", "class_pred", "class_avg"})
"""For scores of the logits, which every projection gives anew."""

FEATURE_PROJECTIONS = ALL_PROJECTIONS - {"class"}
"""For scores of one feature vector: the class-wise projection gives one vector per class."""


def tune(values: Sequence[Any], *, of_features: bool = False) -> dict[str, Any]:
    """Field metadata: the values that tuning tries, where asked as shares of the number of features."""
    return {"tune": list(values), "of_features": of_features}


def require(*names: Need) -> frozenset[Need]:
    """A set of needs, readable in a class body."""
    return frozenset(names)
