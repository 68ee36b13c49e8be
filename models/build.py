"""From a classifier and fit data to a verified bundle."""

import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from models.bundle import (
    Bundle,
    GraphNames,
    Manifest,
    check_names,
    check_target,
    file_sha256,
    jsonable,
    save_bundle,
    utc_now,
)
from models.classifier import Classifier
from models.collect import Collected, collect
from models.data import Source, load_arrays, open_source
from models.errors import BundleError, ScoreError
from models.fuse import Fused, accept_pixels, fuse
from models.inputs import ImageInput, TensorInput
from models.opening.probe import Probe
from models.runtime import RuntimeOptions, Scorer
from models.scores import FitData, FittedScore, fit_score, get_score, parse_spec
from models.scores.tune import Target, tune
from models.scores.wrappers import get_wrapper
from models.signals import Signals, join

_DEVIATION = 1e-3
"""Largest accepted gap between fused and unfused scores, as a share of the scores' spread."""

_PROBES = 32

Progress = Callable[[int], None]
TuneProgress = Callable[[str, int, int], None]
"""(role, done, total) after each setting that was tried."""


@dataclass(frozen=True)
class Validation:
    """Held-out data: labelled in-distribution for temperatures, both kinds for a search of the parameters."""

    id: str | Path
    ood: Sequence[str | Path] = ()
    tune: bool = False


@dataclass(frozen=True)
class Recipe:
    """What a bundle is made of, besides the model and the data."""

    s_id: str = "msp"
    s_ood: str = "vim"
    name: str = "classifier"
    version: str = "1"
    classes: Sequence[str] | None = None
    image: ImageInput | None = None
    runtime: RuntimeOptions = field(default_factory=RuntimeOptions)
    provenance: dict[str, Any] = field(default_factory=dict)


def build(
    model: str | Path,
    fit: str | Path | None,
    out: str | Path,
    recipe: Recipe,
    *,
    classifier: Classifier | None = None,
    overwrite: bool = False,
    validation: Validation | None = None,
    progress: Progress = lambda _: None,
    tuning: TuneProgress = lambda _role, _done, _total: None,
) -> Bundle:
    """Open the model, fit both scores on in-distribution data, fuse, check the fused graph and save it.

    `fit` may be None for scores that are fitted on nothing (`msp`, `energy`, …). `classifier` is the model already
    opened, where that took choices of its own.
    """
    _check_specs(recipe, fit)
    check_names(recipe.name, recipe.version)
    check_target(out, overwrite=overwrite)
    classifier = classifier or Classifier.open(model)
    if recipe.image is not None:
        classifier = accept_pixels(classifier, recipe.image)
    inputs = recipe.image or tensor_input(classifier)
    source = open_source(fit, inputs, classes=recipe.classes or classifier.classes) if fit is not None else None
    classes = class_names(classifier, recipe.classes or (source.classes if source else None))
    rows = collect(classifier, source, progress=progress) if source else _made_up(classifier, inputs)
    with rows as data:
        fit_data = FitData.of(data.signals, data.labels, classifier.head)
        held_out = _HeldOut.load(validation, classifier, inputs, classes) if validation else None
        scores, trials = _fit(recipe, fit_data, held_out, tuning)
        fused = fuse(classifier, scores["s_id"], scores["s_ood"])
        checked = verify(fused.model, scores, data, recipe.runtime, classifier.fixed_batch)
        fitted_on = _fit_record(fit, source, len(data))
        if isinstance(inputs, TensorInput) and None in inputs.shape:
            inputs = inputs.model_copy(update={"seen": data.head_inputs.shape[1:]})
    manifest = Manifest(
        name=recipe.name,
        version=recipe.version,
        created_at=utc_now(),
        input=inputs,
        classes=classes,
        scores={"s_id": _record(scores["s_id"]), "s_ood": _record(scores["s_ood"])},
        graph=_names(classifier, fused),
        runtime=recipe.runtime,
        provenance={
            "model": {"file": Path(model).name, "sha256": file_sha256(Path(model))},
            "findings": list(classifier.findings),
            "fit": fitted_on,
            "fused_equals_unfused": checked,
            "tuning": trials,
            "software": software(),
            **recipe.provenance,
        },
        files={},
    )
    return save_bundle(out, manifest, fused.model, overwrite=overwrite)


def tensor_input(classifier: Classifier) -> TensorInput:
    """The input of a classifier that takes plain tensors."""
    return TensorInput(dtype=np.dtype(classifier.input_dtype).name, shape=classifier.input_shape)


def class_names(classifier: Classifier, given: Sequence[str] | None) -> tuple[str, ...]:
    """One distinct name a class: the given ones, the model's own, else its indices."""
    names = tuple(given or classifier.classes or (str(i) for i in range(classifier.n_classes)))
    if len(names) != classifier.n_classes:
        raise BundleError(f"{len(names)} class names were given, but the model has {classifier.n_classes} classes.")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BundleError(f"The class name {twice!r} is given twice; every class needs a name of its own.")
    return names


def verify(
    fused: onnx.ModelProto,
    scores: dict[str, FittedScore],
    data: Collected,
    options: RuntimeOptions,
    fixed_batch: int | None,
) -> dict[str, Any]:
    """Run the fused graph beside the unfused definitions on real rows; a disagreement refuses the bundle."""
    x = data.head_inputs
    n = len(x)
    features = data.signals.features
    signals = Signals(np.asarray(data.signals.logits[:n]), None if features is None else np.asarray(features[:n]))
    got = Scorer(fused, options, fixed_batch=fixed_batch).score(x)
    expected_label = np.argmax(signals.logits, axis=1)
    top_two = np.sort(np.asarray(signals.logits, np.float64), axis=1)[:, -2:]
    clear = np.diff(top_two, axis=1)[:, 0] > 1e-4 * (1 + np.abs(top_two[:, 1]))
    if (got.label != expected_label)[clear].any():
        raise BundleError("The fused graph gives other labels than the model; this is a defect, please report it.")
    deviations = {}
    for role, score in scores.items():
        deviations[role] = _deviation(getattr(got, role), score.compute(signals))
        if not deviations[role] <= _DEVIATION:
            raise BundleError(
                f"{score.spec} in the graph deviates from its definition by {deviations[role]:.2g} of its spread "
                f"(at most {_DEVIATION:g} is allowed); fit it on more data or choose another score."
            )
    return {"rows": n, "largest_deviation": deviations, "optimization": options.optimization}


def software() -> dict[str, str]:
    """The versions that made a bundle."""
    packages = ("airlock-gate", "numpy", "onnx")
    versions = {name: importlib.metadata.version(name) for name in packages}
    import onnxruntime

    return {**versions, "onnxruntime": onnxruntime.__version__, "python": platform.python_version()}


def _check_specs(recipe: Recipe, fit: str | Path | None) -> None:
    for text in (recipe.s_id, recipe.s_ood):
        spec = parse_spec(text)
        needs = get_score(spec.id).needs.union(*(get_wrapper(w.id).needs for w in spec.wrappers))
        if fit is None and needs & {"fit", "labels"}:
            raise ScoreError(f"{text} is fitted on in-distribution data; name some with --fit.")


@contextmanager
def _made_up(classifier: Classifier, inputs: ImageInput | TensorInput) -> Iterator[Collected]:
    """Random rows in place of fit data: enough to know shapes and to check the fused graph."""
    shape = tuple(1 if size is None else size for size in inputs.item_shape)
    x = Probe(inputs.np_dtype, shape, 256 if inputs.kind == "image" else 2).draw(_PROBES, seed=0)
    yield Collected(classifier.signals(x), None, x)


def _fit_record(fit: str | Path | None, source: Source | None, rows: int) -> dict[str, Any] | None:
    if source is None:
        return None
    return {"data": Path(str(fit)).name, "rows": rows, "fingerprint": source.fingerprint()}


def _deviation(got: NDArray[np.float64], want: NDArray[np.float64]) -> float:
    """The largest gap as a share of the spread between rows."""
    spread = float(np.std(want)) or float(np.abs(want).max()) or 1.0
    gaps = np.abs(got - want)
    return float(np.max(gaps) / spread) if np.isfinite(gaps).all() else float("inf")


@dataclass(frozen=True)
class _HeldOut:
    """Signals of the validation data."""

    id: Signals
    labels: NDArray[np.int64]
    ood: Signals | None
    tune: bool

    @classmethod
    def load(
        cls, data: Validation, classifier: Classifier, inputs: ImageInput | TensorInput, classes: Sequence[str]
    ) -> "_HeldOut":
        x, labels = load_arrays(data.id, inputs, classes=classes)
        if labels is None:
            raise ScoreError(f"{data.id} has no labels; validation data needs them.")
        ood = [classifier.signals(load_arrays(path, inputs, classes=classes)[0]) for path in data.ood]
        return cls(classifier.signals(x), labels, join(ood) if ood else None, data.tune)


def _fit(
    recipe: Recipe, fit: FitData, held_out: _HeldOut | None, tuning: TuneProgress
) -> tuple[dict[str, FittedScore], dict[str, Any]]:
    """Both scores fitted, after a search of their parameters where that is asked for."""
    scores: dict[str, FittedScore] = {}
    trials: dict[str, Any] = {}
    roles: tuple[tuple[Target, str], ...] = (("s_id", recipe.s_id), ("s_ood", recipe.s_ood))
    for role, text in roles:
        spec = parse_spec(text)
        if held_out is not None and held_out.tune:
            report = partial(tuning, role)
            tuned = tune(spec, fit, held_out.id, held_out.labels, held_out.ood, role, report)
            spec, trials[role] = tuned.spec, tuned.record()
        validation = None if held_out is None else FitData.of(held_out.id, held_out.labels, fit.head)
        scores[role] = fit_score(spec, None, fit, validation=validation)
    return scores, jsonable(trials)


def _record(score: FittedScore) -> dict[str, Any]:
    record: dict[str, Any] = jsonable(score.spec.model_dump(mode="json"))
    return {**record, "spec": str(score.spec), "notes": list(score.notes)}


def _names(classifier: Classifier, fused: Fused) -> GraphNames:
    if classifier.logits_kind not in ("logits", "log_probabilities"):
        raise ScoreError(f"The classifier's logits are of an unknown kind, {classifier.logits_kind!r}.")
    return GraphNames(
        logits=fused.logits,
        logits_kind=classifier.logits_kind,
        features=fused.features,
        fixed_batch=classifier.fixed_batch,
    )
