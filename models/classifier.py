"""Open any ONNX classifier: find its logits, its head and its penultimate features, and prove what was found."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from models.errors import ModelsError
from models.graph import GraphIndex, with_outputs
from models.opening.batch import AXIS
from models.opening.examine import Exam, examine
from models.opening.head import Trace, append_features, append_target, trace
from models.opening.logits import LOG, Reading, append_guard, append_logits, read_logits
from models.opening.names import class_names
from models.opening.probe import read_input, run
from models.opening.proof import prove
from models.runtime import RuntimeOptions, Session
from models.signals import Head, Signals

_SERVED = RuntimeOptions(provider="cpu")  # the proof runs with the optimisations that serving uses


@dataclass(frozen=True, eq=False)
class Classifier:
    """A classifier whose logits, and features where a head was proven, are values of one self-contained graph.

    `model` is at opset 18 or later and its outputs are `logits` [batch, classes] and, where there is a head,
    `features` [batch, D] with `features · head.weightᵀ + head.bias = logits`. `findings` says in sentences what
    was found and how it was proven.

    >>> classifier = Classifier.open("resnet18.onnx")  # doctest: +SKIP
    >>> classifier.signals(x).logits.shape  # doctest: +SKIP
    (8, 1000)
    """

    model: onnx.ModelProto = field(repr=False)
    input_name: str
    input_dtype: np.dtype[Any]
    input_shape: tuple[int | None, ...]
    fixed_batch: int | None
    logits: str
    logits_kind: str
    features: str | None
    head: Head | None = field(repr=False)
    n_classes: int
    classes: tuple[str, ...] | None = field(default=None, repr=False)
    findings: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def open(
        cls, source: str | Path | bytes | onnx.ModelProto, *, input: str | None = None, output: str | None = None
    ) -> "Classifier":
        """Open a file, its bytes or a model in memory.

        `output` names the class scores where the model has several float outputs; any value of the graph may be named.
        """
        return _assemble(examine(source, input, output))

    @classmethod
    def from_parts(
        cls,
        model: onnx.ModelProto,
        *,
        logits: str,
        n_classes: int,
        features: str | None = None,
        head: Head | None = None,
        logits_kind: str = "logits",
        classes: tuple[str, ...] | None = None,
    ) -> "Classifier":
        """A classifier whose values are known, for example from a bundle's manifest; nothing is proven again."""
        source = read_input(model, None)
        return cls(
            model, source.name, source.dtype, source.shape, source.batch,
            logits, logits_kind, features, head, n_classes, classes,
        )  # fmt: skip

    def signals(self, x: NDArray[Any]) -> Signals:
        """Logits and features of a batch of any size."""
        return Signals(*self._session.run(x, self._session.outputs))

    @cached_property
    def _session(self) -> Session:
        wanted = [self.logits] if self.features is None else [self.logits, self.features]
        return Session(with_outputs(self.model, wanted), fixed_batch=self.fixed_batch)


@dataclass(frozen=True)
class _Found:
    """What was found at the end of the graph: the head and its features where proven, and the sentence about them."""

    head: Head | None
    features: str | None
    logits: str
    sentence: str
    values: dict[str, NDArray[Any]]


def _assemble(exam: Exam) -> Classifier:
    """Append what is missing to an examined model, prove the head, keep only what the signals need."""
    read = read_logits(exam.output, exam.raw, exam.values, GraphIndex(exam.model))
    found = _find_head(exam, read, append_logits(exam.model, read, exam.values))
    values = found.values if found.logits in found.values else _run_as_served(exam, [found.logits, *found.values])
    logits = values[found.logits]
    outputs = {name: values[name] for name in (found.logits, found.features) if name is not None}
    n_classes = logits.shape[1]
    classes = class_names(exam.model, n_classes)
    words = [_output_words(read, n_classes, classes), found.sentence, *_label_words(exam, logits, classes)]
    return Classifier(
        _declared(exam, outputs), exam.source.name, exam.source.dtype, exam.source.shape, exam.fixed_batch,
        found.logits, read.kind, found.features, found.head, n_classes, classes, (*exam.findings, *words),
    )  # fmt: skip


def _find_head(exam: Exam, read: Reading, logits: str) -> _Found:
    """The proven head and its features, or neither and why."""
    model = exam.model
    found: Trace | str = "the graph holds no logits, only what was made of them"
    if read.recipe != LOG:
        found = trace(GraphIndex(model), logits)
    if isinstance(found, Trace):
        example = exam.values.get(found.layer.source)
        features = append_features(model, found, None if example is None else example.ndim)
        try:
            values = _run_as_served(exam, [logits, features, found.target.value])
        except ModelsError as fault:
            found = f"the features of a {found.layer.kind} layer cannot be computed ({str(fault).rstrip('.')})"
        else:
            head, sentence = prove(model, found, features, values, example)
            rounded = logits if head and found.rounded else None
            exact = append_target(model, found, values[logits].dtype) if rounded else logits
            guarded = append_guard(model, exact, read, rounded, exam.values)
            return _Found(head, features if head else None, guarded, sentence, values)
    sentence = f"No head was found: {found}; scores that read only the logits remain possible."
    guarded = append_guard(model, logits, read, None, exam.values)
    return _Found(None, None, guarded, sentence, _run_as_served(exam, [guarded]))


def _run_as_served(exam: Exam, wanted: list[str]) -> dict[str, NDArray[Any]]:
    """The values on fresh random inputs; before them on those whose label the model has given."""
    fresh = exam.probe.draw(len(exam.x), seed=1)
    x = fresh if exam.label is None else np.concatenate([exam.x, fresh])
    names = list(dict.fromkeys(wanted))
    return run(Session(with_outputs(exam.model, names), _SERVED), x, names, exam.fixed_batch)


def _declared(exam: Exam, outputs: dict[str, NDArray[Any]]) -> onnx.ModelProto:
    """The graph reduced to the given outputs, with their types and shapes written down."""
    model = with_outputs(exam.model, outputs)
    del model.graph.output[:]
    for name, value in outputs.items():
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        shape = [exam.fixed_batch or AXIS, value.shape[1]]
        model.graph.output.append(helper.make_tensor_value_info(name, kind, shape))
    return model


def _output_words(read: Reading, n_classes: int, classes: tuple[str, ...] | None) -> str:
    named = f" ({', '.join(classes[:3])}{', …' if n_classes > 3 else ''})" if classes else ""
    words = f"The output {read.why}; {n_classes} classes{named}."
    if read.kind == "log_probabilities":
        words += " The energy of log-probabilities is always zero: use msp, margin or entropy instead."
    return words


def _label_words(exam: Exam, logits: NDArray[Any], classes: tuple[str, ...] | None) -> list[str]:
    """One sentence where the model's own label is not the class of the largest logit."""
    if exam.label is None:
        return []
    given = [str(label) for label in exam.label.reshape(-1)]
    top = [classes[i] if classes else str(i) for i in logits[: len(given)].argmax(1)]
    wrong = sum(a != b for a, b in zip(given, top, strict=True))
    if not wrong:
        return []
    return [
        f"The model's own label differs from the class of its largest score on {wrong} of {len(given)} random inputs; "
        "the gate answers with the class of the largest score."
    ]
