"""ONNX Runtime behind one door: CUDA when it really works, else CPU; the only place that calls `session.run`."""

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from models.errors import InputError, ModelsError, RuntimeFault

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"

_LEVELS = {
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_FATAL_ONLY = 4  # ORT's own stderr lines repeat what we raise as one sentence


class RuntimeOptions(BaseModel):
    """How a graph is run. The optimisation level moves scores in the last digits, so a bundle pins it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int = Field(0, ge=0, description="intra-op threads; 0 leaves the choice to ONNX Runtime")
    optimization: Literal["disable", "basic", "extended", "all"] = "all"
    max_batch: int = Field(256, ge=1, description="larger inputs are run in chunks of this size")


class Session:
    """One graph, loaded and proven to run; safe to call from many threads without a lock."""

    def __init__(
        self,
        model: bytes | str | Path | onnx.ModelProto,
        options: RuntimeOptions | None = None,
        *,
        fixed_batch: int | None = None,
    ) -> None:
        self.options = options or RuntimeOptions()
        self.fixed_batch = fixed_batch
        self._chunk = fixed_batch or self.options.max_batch
        self._session = _open(model, self.options, fixed_batch)
        self._run_options = ort.RunOptions()
        self._run_options.only_execute_path_to_fetches = True  # what nobody asked for is not computed
        self.provider: str = self._session.get_providers()[0]
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            names = ", ".join(i.name for i in inputs)
            raise RuntimeFault(f"The graph takes {len(inputs)} inputs ({names}); a classifier takes exactly one.")
        self.input_name: str = inputs[0].name
        self.outputs: tuple[str, ...] = tuple(o.name for o in self._session.get_outputs())

    def run(self, x: NDArray[Any], outputs: Sequence[str]) -> list[NDArray[Any]]:
        """The named outputs for a batch of any size; long batches go in chunks, fixed batches are padded."""
        n = len(x)
        if 0 < n <= self._chunk and (self.fixed_batch is None or n == self.fixed_batch):
            return self._call(x, outputs)
        if n == 0:
            probe = np.zeros((self.fixed_batch or 1, *x.shape[1:]), x.dtype)
            return [out[:0] for out in self._call(probe, outputs)]
        parts = [self._part(x[start : start + self._chunk], outputs) for start in range(0, n, self._chunk)]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _part(self, x: NDArray[Any], outputs: Sequence[str]) -> list[NDArray[Any]]:
        n = len(x)
        if self.fixed_batch is None or n == self.fixed_batch:
            return self._call(x, outputs)
        padding = np.repeat(x[-1:], self.fixed_batch - n, axis=0)
        return [out[:n] for out in self._call(np.concatenate([x, padding]), outputs)]

    def _call(self, x: NDArray[Any], outputs: Sequence[str]) -> list[NDArray[Any]]:
        try:
            result: list[NDArray[Any]] = self._session.run(outputs, {self.input_name: x}, self._run_options)
        except Exception as fault:  # ORT raises a class of its own for every status code
            raise _explain(fault, x, self._session) from fault
        return result


@dataclass(frozen=True)
class Scored:
    """What the fused graph says of a batch: one entry an item."""

    label: NDArray[np.int64]
    s_id: NDArray[np.float64]
    s_ood: NDArray[np.float64]
    finite: NDArray[np.bool_]
    probabilities: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.label)


class Scorer:
    """A fused graph ready to answer: `score(x)` is one `session.run` a chunk."""

    GATE = ("label", "s_id", "s_ood", "finite")

    def __init__(
        self,
        model: bytes | str | Path | onnx.ModelProto,
        options: RuntimeOptions | None = None,
        *,
        fixed_batch: int | None = None,
    ) -> None:
        self.session = Session(model, options, fixed_batch=fixed_batch)
        missing = [name for name in self.GATE if name not in self.session.outputs]
        if missing:
            raise RuntimeFault(
                f"The graph has no output {', '.join(missing)}; it was not made by `airlock build` (outputs: "
                f"{', '.join(self.session.outputs)})."
            )
        self.provider = self.session.provider
        self._example: NDArray[Any] | None = None

    def score(self, x: NDArray[Any], *, probabilities: bool = False) -> Scored:
        """Label, both scores and the finite flag of every item of `x`."""
        if not probabilities:
            return Scored(*self.session.run(x, self.GATE))
        return Scored(*self.session.run(x, (*self.GATE, "probabilities")))

    def warm_up(self, x: NDArray[Any]) -> None:
        """Run once, so that the first caller does not pay for ORT's lazy allocations."""
        self.score(x)
        self._example = x

    def still_runs(self) -> bool:
        """Whether what it was warmed up with is answered yet: if so, a failure is the fault of the input."""
        if self._example is None:
            return False
        try:
            self.score(self._example)
        except ModelsError:
            return False
        return True


def _open(model: bytes | str | Path | onnx.ModelProto, options: RuntimeOptions, fixed_batch: int | None) -> Any:
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    if isinstance(source, Path):
        source = str(source)
    if options.provider != "cpu":
        session = _try_cuda(source, options, fixed_batch)
        if session is not None:
            return session
        if options.provider == "cuda":
            raise RuntimeFault(
                "provider=cuda was asked for, but CUDA does not run here; install a CUDA build of ONNX Runtime "
                "with its libraries, or use provider=auto or cpu."
            )
    return _create(source, options, [CPU])


def _create(source: bytes | str, options: RuntimeOptions, providers: list[str]) -> Any:
    settings = ort.SessionOptions()
    settings.graph_optimization_level = _LEVELS[options.optimization]
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    settings.log_severity_level = _FATAL_ONLY
    try:
        return ort.InferenceSession(source, settings, providers=providers)
    except Exception as fault:  # every status code has its own exception class
        raise RuntimeFault(f"ONNX Runtime cannot load the graph: {_first_line(fault)}") from fault


def _try_cuda(source: bytes | str, options: RuntimeOptions, fixed_batch: int | None) -> Any:
    """A CUDA session that has really run once, or None: the provider list alone proves nothing."""
    if not cuda_driver():
        return None
    try:
        session = _create(source, options, [CUDA, CPU])
        if session.get_providers()[0] != CUDA:
            return None
        session.run(None, {i.name: _zeros(i, fixed_batch) for i in session.get_inputs()})
    except Exception:  # whatever CUDA dislikes, the CPU still answers
        return None
    return session


@lru_cache(maxsize=1)
def cuda_driver() -> bool:
    """Whether a CUDA build of the runtime and a driver are there; only a run proves that they work."""
    if CUDA not in ort.get_available_providers():
        return False
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls()
    return True


_TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8, "tensor(int8)": np.int8, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}  # fmt: skip


def _zeros(node: Any, fixed_batch: int | None) -> NDArray[Any]:
    shape = [size if isinstance(size, int) and size > 0 else 1 for size in node.shape]
    if fixed_batch and shape:
        shape[0] = fixed_batch
    return np.zeros(shape, _TYPES.get(node.type, np.float32))


def _explain(fault: Exception, x: NDArray[Any], session: Any) -> InputError | RuntimeFault:
    """ORT's status text as one sentence; a shape or type mismatch is the caller's to mend."""
    node = session.get_inputs()[0]
    expected = _TYPES.get(node.type)
    fits = len(node.shape) == x.ndim and all(
        not isinstance(want, int) or want == got for want, got in zip(node.shape[1:], x.shape[1:], strict=False)
    )
    if not fits or (expected is not None and x.dtype != expected):
        return InputError(
            f"The model takes {node.type[7:-1]} of shape {node.shape}, but {x.dtype} of shape {list(x.shape)} arrived."
        )
    return RuntimeFault(f"ONNX Runtime failed on a batch of shape {list(x.shape)}: {_first_line(fault)}")


def _first_line(fault: Exception) -> str:
    return str(fault).strip().splitlines()[0][:300] if str(fault).strip() else type(fault).__name__
