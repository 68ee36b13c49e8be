"""Fitting a score, and the fitted score: computed by numpy, or emitted into a graph."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from models.errors import ScoreError
from models.signals import Signals

from .base import Inputs, Need, Score, ScoreParams, Theta
from .catalogue import get_score, possible_scores
from .fitdata import FitBatch, FitData
from .namespace import Array, Namespace
from .numpy_namespace import NumpyNamespace
from .onnx_namespace import OnnxNamespace
from .spec import ScoreSpec, WrapperSpec, parse_spec
from .wrappers import Wrapper, get_wrapper

CHUNK = 1024
"""Rows computed at once, so that a bank of neighbours costs bounded memory."""


class Operands(Mapping[str, Array]):
    """Fitted arrays as operands of a namespace, made when the formula first asks for them."""

    def __init__(self, xp: Namespace, theta: Theta) -> None:
        self._xp = xp
        self._theta = theta
        self._made: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._made:
            self._made[name] = self._xp.constant(self._theta[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._theta)

    def __len__(self) -> int:
        return len(self._theta)


@dataclass(frozen=True)
class FittedWrapper:
    """A wrapper with its parameters and statistics."""

    wrapper: Wrapper
    params: ScoreParams
    theta: Theta

    def apply(self, xp: Namespace, x: Inputs) -> Inputs:
        return self.wrapper.apply(xp, x, Operands(xp, self.theta), self.params)

    def transform(self, batch: FitBatch) -> FitBatch:
        """Fit data as the wrapped score will see its inputs."""
        with np.errstate(all="ignore"):
            x = self.apply(NumpyNamespace(), inputs_of(batch.logits, batch.features))
            return FitBatch(x.z, x.h, batch.labels)


@dataclass(frozen=True)
class FittedScore:
    """A score that is ready to run: what it is (`spec`), what was fitted (`theta`), what the fit noted (`notes`)."""

    score: Score
    params: ScoreParams
    theta: Theta
    wrappers: tuple[FittedWrapper, ...]
    n_classes: int
    dim: int
    notes: tuple[str, ...] = ()

    @cached_property
    def spec(self) -> ScoreSpec:
        """Id, parameters and wrappers as fitted; `spec.model_dump()` is JSON-able, `str(spec)` the notation."""
        wrappers = tuple(WrapperSpec(id=w.wrapper.id, params=w.params.model_dump()) for w in self.wrappers)
        return ScoreSpec(id=self.score.id, params=self.params.model_dump(), wrappers=wrappers)

    @property
    def needs(self) -> frozenset[Need]:
        return self.score.needs.union(*(w.wrapper.needs for w in self.wrappers))

    @property
    def uses_features(self) -> bool:
        return "features" in self.needs

    def compute(self, signals: Signals) -> NDArray[np.float64]:
        """The score by its numpy definition; NaN for a row with a non-finite signal."""
        features = signals.features if self.uses_features else None
        if self.uses_features and features is None:
            raise ScoreError(f"{self.spec} needs penultimate features and the signals have none.")
        parts = [
            self._chunk(signals.logits[i : i + CHUNK], None if features is None else features[i : i + CHUNK])
            for i in range(0, len(signals), CHUNK)
        ]
        return np.concatenate(parts) if parts else np.empty(0)

    def _chunk(self, logits: np.ndarray, features: np.ndarray | None) -> NDArray[np.float64]:
        x = inputs_of(logits, features)
        finite = np.isfinite(x.z).all(axis=1)
        if features is not None:
            finite &= np.isfinite(x.h).all(axis=1)
        with np.errstate(all="ignore"):
            value = np.asarray(self._formula(NumpyNamespace(), x), dtype=np.float64)
        return np.where(finite, value, np.nan)

    def emit(self, ns: OnnxNamespace, logits: str, features: str | None = None) -> str:
        """Append the formula to a graph; returns the name of its float64 [B] value.

        The formula trusts that its signals are finite: the graph asks that in a node of its own.
        """
        if self.uses_features and features is None:
            raise ScoreError(f"{self.spec} needs penultimate features and the graph names none.")
        h = ns.float64(ns.value(features)) if self.uses_features and features is not None else None
        x = Inputs(ns.float64(ns.value(logits)), h, self.n_classes, self.dim)
        name: str = self._formula(ns, x).name
        return name

    def _formula(self, xp: Namespace, x: Inputs) -> Array:
        for wrapper in self.wrappers:
            x = wrapper.apply(xp, x)
        return self.score.formula(xp, x, Operands(xp, self.theta), self.params)


def inputs_of(logits: np.ndarray, features: np.ndarray | None) -> Inputs:
    """Signals as float64 inputs of a numpy formula."""
    h = None if features is None else np.asarray(features, dtype=np.float64)
    return Inputs(np.asarray(logits, dtype=np.float64), h, logits.shape[1], 0 if h is None else h.shape[1])


def fit_score(
    spec: str | ScoreSpec,
    params: Mapping[str, Any] | None = None,
    data: FitData | None = None,
    wrappers: Iterable[WrapperSpec] = (),
    validation: FitData | None = None,
) -> FittedScore:
    """Fit a score, given by id or notation, on in-distribution data.

    `params` and `wrappers` add to those of the notation. `validation` is what the temperature is fitted on; without
    it the fit data serves, and the result notes that.
    """
    if data is None:
        raise ScoreError("A score is fitted on data: give FitData with at least the logits' shape.")
    asked = parse_spec(spec) if isinstance(spec, str) else spec
    asked = replace_spec(asked, params or {}, wrappers)
    score = get_score(asked.id)
    given, outer = _own_projection(score, asked)
    parsed = parse_params(score.id, score.Params, given)
    _check_needs(score, data, outer)
    seen, fitted, notes = _fit_wrappers(score, outer, data, validation)
    theta = score.fit(seen if score.fits_projected else data, parsed)
    parsed = parsed.model_copy(update=theta.settled)
    return FittedScore(score, parsed, theta, fitted, data.n_classes, data.dim, (*notes, *theta.notes, *_dropped(data)))


def replace_spec(spec: ScoreSpec, params: Mapping[str, Any], wrappers: Iterable[WrapperSpec] = ()) -> ScoreSpec:
    """A spec with parameters overridden and wrappers added."""
    return ScoreSpec(id=spec.id, params={**spec.params, **params}, wrappers=(*spec.wrappers, *tuple(wrappers)))


def parse_params(owner: str, model: type[ScoreParams], given: Mapping[str, Any]) -> ScoreParams:
    """Validated parameters, or one sentence: which one, what is allowed, what arrived."""
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise ScoreError(_complaint(owner, model, error)) from None


def _complaint(owner: str, model: type[ScoreParams], error: ValidationError) -> str:
    """The first wrong parameter; where it may be one of several kinds, what each of them asks for."""
    first = error.errors()[0]
    if not first["loc"]:
        return f"{owner}: {first['msg'].removeprefix('Value error, ')}."
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        known = ", ".join(model.model_fields) or "none"
        return f"{owner} has no parameter {name!r}: its parameters are {known}."
    rules = [problem["msg"] for problem in error.errors() if problem["loc"][:1] == (name,)]
    rule = " or ".join(rule.removeprefix("Input ") for rule in rules)
    return f"{owner}'s parameter {name} {rule}, got {first['input']!r}."


def _own_projection(score: Score, spec: ScoreSpec) -> tuple[dict[str, Any], tuple[WrapperSpec, ...]]:
    """A projection error takes the mode and its settings as its own parameters, not as a wrapper."""
    params = dict(spec.params)
    outer = []
    for wrapper in spec.wrappers:
        if wrapper.id == "project" and score.project_as is not None:
            settings = dict(wrapper.params)
            if "mode" in settings:
                settings[score.project_as] = settings.pop("mode")
            params.update(settings)
        else:
            outer.append(wrapper)
    return params, tuple(outer)


def _check_needs(score: Score, data: FitData, wrappers: tuple[WrapperSpec, ...]) -> None:
    wanted = score.needs.union(*(get_wrapper(w.id).needs for w in wrappers))
    have = {
        "features": data.has_features,
        "head": data.head is not None,
        "labels": data.has_labels,
        "fit": "fit" not in wanted or not data.is_empty,
    }
    words = {
        "features": "penultimate features",
        "head": "the classifier's linear head",
        "labels": "labels of the fit data",
        "fit": "fit data with at least one finite row",
    }
    for need, present in have.items():
        if need in wanted and not present:
            possible = ", ".join(possible_scores(data.has_features, data.head is not None, data.has_labels))
            raise ScoreError(f"{score.id} needs {words[need]}, which are not there; possible scores: {possible}.")


def _fit_wrappers(
    score: Score, wrappers: tuple[WrapperSpec, ...], data: FitData, validation: FitData | None
) -> tuple[FitData, tuple[FittedWrapper, ...], tuple[str, ...]]:
    """Fit each wrapper on what the previous one lets through, projection before temperature."""
    fitted: list[FittedWrapper] = []
    notes: list[str] = []
    names = [w.id for w in wrappers]
    if len(set(names)) != len(names):
        raise ScoreError(f"A wrapper is given twice in {score.id}+{'+'.join(names)}; use each once.")
    for given in sorted(wrappers, key=lambda w: get_wrapper(w.id).order):
        wrapper = get_wrapper(given.id)
        params = parse_params(given.id, wrapper.Params, given.params)
        wrapper.check(score, params, data)
        theta, params = wrapper.fit(data, params, validation)
        step = FittedWrapper(wrapper, params, theta)
        fitted.append(step)
        notes.extend(theta.notes)
        head = wrapper.head(data.head, theta, params)
        data = data.map(step.transform, head)
        validation = None if validation is None else validation.map(step.transform, head)
    return data, tuple(fitted), tuple(notes)


def _dropped(data: FitData) -> tuple[str, ...]:
    return (
        (f"{data.dropped} rows of the fit data were left out because of non-finite signals.",) if data.dropped else ()
    )


__all__ = ["FittedScore", "FittedWrapper", "fit_score", "inputs_of", "parse_params", "replace_spec"]
