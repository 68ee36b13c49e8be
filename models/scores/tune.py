"""Search a score's parameters on a validation split."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from models.errors import ScoreError
from models.signals import Signals

from .base import ScoreParams
from .catalogue import get_score
from .fitdata import FitData
from .fitted import FittedScore, fit_score
from .objectives import augrc, auroc
from .spec import ScoreSpec, WrapperSpec, parse_spec
from .wrappers import get_wrapper

Target = Literal["s_id", "s_ood"]


@dataclass(frozen=True)
class Trial:
    """One setting: its notation, the objective it reached, or why it could not be fitted."""

    spec: str
    value: float | None
    problem: str | None = None


@dataclass(frozen=True)
class Tuned:
    """The best setting, what was optimised, and everything that was tried, in order."""

    spec: ScoreSpec
    objective: str
    trials: tuple[Trial, ...]

    def record(self) -> dict[str, Any]:
        """What a manifest keeps."""
        return {
            "objective": self.objective,
            "best": str(self.spec),
            "trials": [{"spec": t.spec, "value": t.value, "problem": t.problem} for t in self.trials],
        }


def tune(
    spec: str | ScoreSpec,
    fit: FitData,
    val_id: Signals,
    labels: np.ndarray | None,
    val_ood: Signals | None = None,
    role: Target = "s_ood",
    progress: Callable[[int, int], None] | None = None,
) -> Tuned:
    """Try every combination of the tunable parameters that the spec leaves open, and keep the best.

    `s_id` minimises AUGRC on labelled in-distribution validation data, `s_ood` maximises AUROC of in- against
    out-of-distribution. `progress(done, total)` is called after each trial. A temperature is fitted on the validation
    labels and becomes part of the result.
    """
    asked = parse_spec(spec) if isinstance(spec, str) else spec
    objective = _objective(role, val_id, labels, val_ood)
    validation = None if labels is None else FitData.of(val_id, labels, fit.head)
    candidates = list(_candidates(asked, fit.dim))
    trials: list[Trial] = []
    fits: list[tuple[float, ScoreSpec]] = []
    for done, candidate in enumerate(candidates, 1):
        try:
            fitted = fit_score(candidate, None, fit, validation=validation)
        except ScoreError as refusal:
            trials.append(Trial(str(candidate), None, str(refusal)))
        else:
            value = objective.measure(fitted)
            trials.append(Trial(str(candidate), value))
            fits.append((value, fitted.spec))
        if progress is not None:
            progress(done, len(candidates))
    if not fits:
        raise ScoreError(f"No setting of {asked.id} could be fitted: {trials[0].problem}")
    # The first of equals wins: among settings that rank alike the earlier, usually milder one.
    _, best = objective.best(fits, key=lambda item: item[0])
    return Tuned(best, objective.name, tuple(trials))


@dataclass(frozen=True)
class _Objective:
    name: str
    measure: Callable[[FittedScore], float]
    best: Callable[..., tuple[float, ScoreSpec]]


def _objective(role: Target, val_id: Signals, labels: np.ndarray | None, val_ood: Signals | None) -> _Objective:
    if role == "s_ood":
        if val_ood is None or not len(val_ood):
            raise ScoreError("Tuning s_ood needs out-of-distribution validation data, and none was given.")
        return _Objective("AUROC", lambda fitted: auroc(fitted.compute(val_id), fitted.compute(val_ood)), max)
    if labels is None:
        raise ScoreError("Tuning s_id needs labelled validation data, and the labels are missing.")
    correct = np.argmax(val_id.logits, axis=1) == labels
    if correct.all():
        raise ScoreError("Tuning s_id needs validation data with some wrong predictions, and all are right.")
    return _Objective("AUGRC", lambda fitted: augrc(fitted.compute(val_id), correct), min)


def _candidates(spec: ScoreSpec, dim: int) -> Iterator[ScoreSpec]:
    """Every combination; the setting with all defaults comes first, so that it wins a draw."""
    score = _open_values(get_score(spec.id).Params, spec.params, dim)
    wrappers = [_open_values(get_wrapper(w.id).Params, w.params, dim) for w in spec.wrappers]
    yield spec
    for choice in itertools.product(*(_combinations(values) for values in (score, *wrappers))):
        own, *others = choice
        made = ScoreSpec(
            id=spec.id,
            params={**spec.params, **own},
            wrappers=tuple(
                WrapperSpec(id=w.id, params={**w.params, **extra})
                for w, extra in zip(spec.wrappers, others, strict=True)
            ),
        )
        if made != spec:
            yield made


def _combinations(values: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]


def _open_values(model: type[ScoreParams], given: Mapping[str, Any], dim: int) -> dict[str, list[Any]]:
    """Values to try for each tunable parameter that was not given."""
    found: dict[str, list[Any]] = {}
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        if name in given or not isinstance(extra, dict) or "tune" not in extra:
            continue
        values: Any = extra["tune"]
        if extra.get("of_features"):
            values = sorted({min(max(1, math.floor(share * dim)), max(dim - 1, 1)) for share in values})
        found[name] = list(values)
    return found
