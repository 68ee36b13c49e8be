"""A torch module becomes a classifier ONNX file that is proven to answer as the module does.

torch is imported when a function is called, never at import: serving does not need it.
"""

import contextlib
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from models.errors import ClassifierError
from models.runtime import RuntimeOptions, Session

if TYPE_CHECKING:
    import torch

MIN_OPSET = 18
CLASS_NAMES_KEY = "class_names"

# Relative to the largest logit of a batch: the rounding of a deep graph in the given precision.
_PARITY = {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2}


def export_classifier(
    module: "torch.nn.Module",
    example: "torch.Tensor",
    path: str | Path,
    *,
    opset: int = MIN_OPSET,
    dynamic_batch: bool = True,
    class_names: Sequence[str] | None = None,
) -> Path:
    """Write `module` as an ONNX classifier (`input` → `logits`) and return its path.

    `example` is a batch the module takes; its first axis is the batch. The file is written only when ONNX Runtime
    gives the module's logits on the example and on two perturbed copies of it, for other batch sizes too where the
    batch is dynamic. Class names go into the file's metadata as a JSON list.
    """
    if opset < MIN_OPSET:
        raise ClassifierError(f"opset={opset} arrived; a classifier is exported at opset {MIN_OPSET} or above.")
    target = Path(path)
    example = _plain(example)
    with _inference(module):
        n_classes = _count_classes(module, example)
        if class_names is not None and len(class_names) != n_classes:
            raise ClassifierError(
                f"{len(class_names)} class names arrived for a module with {n_classes} outputs; give one a class."
            )
        model = _to_onnx(module, example, opset, dynamic_batch)
        _clean(model, class_names)
        _prove(module, example, model, dynamic_batch)
    _write(target, model.SerializeToString(deterministic=True))
    return target


def _plain(example: "torch.Tensor") -> "torch.Tensor":
    """The same values in row-major order: the exporter writes other strides into the graph, as a detour over Gather."""
    import torch

    return torch.empty(example.shape, dtype=example.dtype, device=example.device).copy_(example)


@contextlib.contextmanager
def _inference(module: "torch.nn.Module") -> Iterator[None]:
    """Evaluation mode and no gradients, with each submodule's own mode put back afterwards."""
    import torch

    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def _count_classes(module: "torch.nn.Module", example: "torch.Tensor") -> int:
    logits = module(example)
    shape = list(getattr(logits, "shape", []))
    if len(shape) != 2 or shape[0] != len(example) or shape[1] < 2:
        raise ClassifierError(
            f"The module gave {f'shape {shape}' if shape else type(logits).__name__} for a batch of {len(example)}; "
            "a classifier gives one tensor [batch, classes] with at least two classes."
        )
    return int(shape[1])


def _to_onnx(module: "torch.nn.Module", example: "torch.Tensor", opset: int, dynamic: bool) -> onnx.ModelProto:
    import torch

    # The exporter specialises a batch of one to the constant 1, so a dynamic batch is traced with two items.
    traced = torch.cat([example, example]) if dynamic and len(example) == 1 else example
    shapes = ({0: torch.export.Dim("batch")},) if dynamic else None
    try:
        with _quiet():
            program = torch.onnx.export(
                module,
                (traced,),
                dynamo=True,
                opset_version=opset,
                input_names=["input"],
                output_names=["logits"],
                dynamic_shapes=shapes,
                verbose=False,
            )
    except Exception as fault:  # the exporter raises many kinds, with pages of advice
        reason = next((line for line in str(fault).splitlines() if line.strip()), type(fault).__name__)
        raise ClassifierError(f"torch cannot export the module to ONNX: {reason}") from fault
    if program is None:
        raise ClassifierError("torch gave no ONNX program for the module.")
    return program.model_proto


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the exporter's warnings and log lines about its own internals."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _clean(model: onnx.ModelProto, class_names: Sequence[str] | None) -> None:
    """Drop the exporter's notes (source paths, stack traces) and write the class names."""
    graph = model.graph
    for node in graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    values: list[Any] = [*graph.input, *graph.output, *graph.value_info, *graph.initializer]
    for value in values:
        del value.metadata_props[:]
        value.doc_string = ""
    del graph.metadata_props[:]
    del model.metadata_props[:]
    model.doc_string = graph.doc_string = ""
    if class_names is not None:
        onnx.helper.set_model_props(model, {CLASS_NAMES_KEY: json.dumps(list(class_names), ensure_ascii=False)})


def _prove(module: "torch.nn.Module", example: "torch.Tensor", model: onnx.ModelProto, dynamic: bool) -> None:
    """Run both on the same batches; refuse a file whose logits are not the module's."""
    onnx.checker.check_model(model)
    session = Session(model, RuntimeOptions(provider="cpu"), fixed_batch=None if dynamic else len(example))
    for batch in _batches(example, dynamic):
        want: NDArray[Any] = module(batch).cpu().numpy()
        (got,) = session.run(batch.cpu().numpy(), ["logits"])
        error = float(np.abs(got.astype(np.float64) - want).max() / max(1.0, float(np.abs(want).max())))
        allowed = _PARITY.get(str(want.dtype), _PARITY["float32"])
        if not error <= allowed:
            raise ClassifierError(
                f"The exported graph differs from the module by {error:.2g} (relative to the largest logit, "
                f"{allowed:g} is allowed); look for branches on values, or constants that torch rounded to float32."
            )


def _batches(example: "torch.Tensor", dynamic: bool) -> Iterator["torch.Tensor"]:
    import torch

    generator = torch.Generator(example.device).manual_seed(0)
    yield example
    for _ in range(2):
        if not example.is_floating_point():
            yield example.flip(0)
            continue
        noise = torch.randn(example.shape, generator=generator, dtype=example.dtype, device=example.device)
        yield example + noise
    if dynamic:
        yield example[:1]
        yield torch.cat([example] * 3)


def _write(path: Path, data: bytes) -> None:
    """All of the file or none of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
