"""Run a model on random inputs until it is known what it takes and gives, on a graph that provably does the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from models.errors import ClassifierError, InputError, RuntimeFault
from models.graph import GraphIndex, drop_unused_inputs, with_outputs
from models.opening import batch
from models.opening.loading import OPSET, load, modernise
from models.opening.outputs import choose_output, label_output, score_outputs, unfold
from models.opening.probe import PLAIN, ModelInput, Probe, find_probe, read_input, run
from models.runtime import Session

_NEAR = 64  # how many values before an output are looked at


@dataclass(frozen=True)
class Exam:
    """A model ready to be read: its graph, and the values near its output for random inputs `x`."""

    model: onnx.ModelProto
    source: ModelInput
    fixed_batch: int | None
    probe: Probe
    x: NDArray[Any]
    output: str
    raw: list[str]
    values: dict[str, NDArray[Any]]
    label: NDArray[Any] | None
    findings: tuple[str, ...]


@dataclass(frozen=True)
class _Running:
    """A form of the model with the values near its outputs in reach, on one set of random inputs."""

    model: onnx.ModelProto
    session: Session
    x: NDArray[Any]
    _rows: dict[int | None, dict[str, NDArray[Any]]] = field(default_factory=dict)

    def rows(self, size: int | None) -> dict[str, NDArray[Any]]:
        """The values that have a row an input, computed in batches of `size` (None: all at once)."""
        if size not in self._rows:
            self._rows[size] = run(self.session, self.x, self.session.outputs, size)
        return self._rows[size]


def examine(given: str | Path | bytes | onnx.ModelProto, input_name: str | None, output_name: str | None) -> Exam:
    """Load the model, bring it to a recent opset and an open batch axis, and look at the values near its output."""
    original = load(given)
    outputs = score_outputs(original, output_name)
    label = label_output(original)
    drop_unused_inputs(original, [*outputs, *([label] if label else [])])
    source = read_input(original, input_name)
    raw = unfold(original, outputs)
    names = [*_near(original, outputs, raw), *([label] if label else [])]
    baseline, probe = _baseline(original, source, outputs, names)
    model, opset = modernise(original)
    running, fixed = _reproduce(model, source, baseline, outputs, _near(model, outputs, raw), opset)
    size = fixed or source.batch
    values, labels = running.rows(size), baseline.rows(size).get(label or "")
    if labels is not None and labels.size != len(baseline.x):
        labels = None
    output = choose_output(outputs, values, len(baseline.x), labels)
    near = {name: values[name] for name in _near(model, [output], raw) if name in values}
    findings = _findings(source, probe, opset, fixed)
    return Exam(running.model, source, fixed, probe, baseline.x, output, raw, near, labels, findings)


def _near(model: onnx.ModelProto, outputs: Sequence[str], raw: Sequence[str]) -> list[str]:
    index = GraphIndex(model)
    return list(dict.fromkeys([*(name for output in outputs for name in index.upstream(output, _NEAR)), *raw]))


def _baseline(
    model: onnx.ModelProto, source: ModelInput, outputs: Sequence[str], names: Sequence[str]
) -> tuple[_Running, Probe]:
    """The model as it came, on random inputs that it accepts."""
    try:
        session = Session(with_outputs(model, names), PLAIN)
    except RuntimeFault as fault:
        raise ClassifierError(f"{str(fault).rstrip('.')}.") from fault
    probe = find_probe(session, source, outputs)
    size = source.batch or 1
    return _Running(model, session, probe.draw(-(-probe.rows // size) * size, seed=0)), probe


def _reproduce(
    model: onnx.ModelProto,
    source: ModelInput,
    baseline: _Running,
    outputs: Sequence[str],
    names: Sequence[str],
    opset: int | None,
) -> tuple[_Running, int | None]:
    """The first form of the model that gives the baseline's rows, and its batch size where it keeps a fixed one."""
    unchanged = opset is None and source.batch is None
    for candidate, fixed in _forms(model, source):
        try:
            session = baseline.session if unchanged else Session(with_outputs(candidate, names), PLAIN)
            running = replace(baseline, model=candidate) if unchanged else _Running(candidate, session, baseline.x)
            if _same_rows(running, baseline, outputs, fixed, fixed or source.batch):
                return running, fixed
        except (RuntimeFault, InputError):
            continue
    size = source.batch or 1
    again = run(baseline.session, baseline.x, list(outputs), size)
    if opset is None or not all(batch.agreeing(rows, baseline.rows(size)[name]).all() for name, rows in again.items()):
        raise ClassifierError(
            "The model gives different answers to the same input; remove what is random in it (dropout in training "
            "mode, random operators) and export it for inference."
        )
    raise ClassifierError(
        f"The model is written for opset {opset}, and after conversion to opset {OPSET} it gives other outputs; "
        f"export it again with opset {OPSET} or later."
    )


def _forms(model: onnx.ModelProto, source: ModelInput) -> Iterator[tuple[onnx.ModelProto, int | None]]:
    """Open batch first; then the size the model was exported for, or single rows where rows influence each other."""
    opened = [batch.declare(model, None)] if source.batch is None else batch.freed(model, source.batch)
    for candidate in opened:
        yield candidate, None
    size = source.batch or 1
    yield batch.declare(model, size), size


def _same_rows(
    running: _Running, baseline: _Running, outputs: Sequence[str], fixed: int | None, size: int | None
) -> bool:
    """Whether a form gives the baseline's rows in batches of the size that the baseline takes, and in any other."""
    truth, made = baseline.rows(size), running.rows(size)
    if not all(name in made and batch.agreeing(truth[name], made[name]).all() for name in outputs if name in truth):
        return False
    if fixed is not None:
        return _answers_alike(running, [name for name in outputs if name in truth], fixed)
    shaped = [name for name in outputs if name in truth]
    return batch.any_size(running.session, running.x, shaped, truth, running.rows(None))


def _answers_alike(running: _Running, outputs: Sequence[str], size: int) -> bool:
    """Whether the first row of a fixed batch gets the same answer again, and next to other rows."""
    x = running.x
    others = np.concatenate([x[:1], np.roll(x, 1, axis=0)[: size - 1]])
    one, two = (running.session.run(rows, outputs) for rows in (x[:size], others))
    if all(np.array_equal(a[0], b[0], equal_nan=True) for a, b in zip(one, two, strict=True)):
        return True
    if size > 1:
        raise ClassifierError(
            f"The batch size is fixed at {size} and a row's answer depends on the other rows of its batch; export the "
            "model with batch size 1 or an open batch axis."
        )
    return False


def _findings(source: ModelInput, probe: Probe, opset: int | None, fixed: int | None) -> tuple[str, ...]:
    found = [f"The input '{source.name}' takes {source.describe()}."]
    if None in source.shape:
        sizes = ", ".join(str(size) for size in probe.shape)
        found.append(f"Sizes that the model leaves open were tried as [{sizes}].")
    if opset is not None:
        found.append(f"Opset {opset} was converted to opset {OPSET}; the outputs are the same on random inputs.")
    if source.batch is not None and fixed is None:
        found.append(
            f"The batch size was fixed at {source.batch}; it is open now, with the same outputs for every size tried."
        )
    elif source.batch is not None:
        found.append(f"The batch size is fixed at {fixed}; inputs are run in chunks of {fixed}, the last one padded.")
    elif fixed is not None:
        found.append("Rows of one batch influence each other in this model, so every row is run on its own.")
    return tuple(found)
