"""The same array language as ONNX nodes: a formula becomes part of the classifier's own graph."""

import hashlib
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .namespace import MASKED, Array, Namespace

Operand = Any

SMALL_TABLE = 128
"""Classes up to which a table of class × class is worth a node."""


class Value:
    """A named value of a graph under construction; arithmetic on it appends nodes."""

    __array_ufunc__ = None  # numpy then leaves `array * value` to this class
    __slots__ = ("name", "ns")

    def __init__(self, ns: "OnnxNamespace", name: str) -> None:
        self.ns = ns
        self.name = name

    def __add__(self, other: Operand) -> "Value":
        return self.ns.node("Add", self, other)

    def __sub__(self, other: Operand) -> "Value":
        return self.ns.node("Sub", self, other)

    def __mul__(self, other: Operand) -> "Value":
        return self.ns.node("Mul", self, other)

    def __truediv__(self, other: Operand) -> "Value":
        return self.ns.node("Div", self, other)

    def __matmul__(self, other: Operand) -> "Value":
        return self.ns.node("MatMul", self, other)

    def __radd__(self, other: Operand) -> "Value":
        return self.ns.node("Add", self, other)

    def __rsub__(self, other: Operand) -> "Value":
        return self.ns.node("Sub", other, self)

    def __rmul__(self, other: Operand) -> "Value":
        return self.ns.node("Mul", self, other)

    def __rtruediv__(self, other: Operand) -> "Value":
        return self.ns.node("Div", other, self)

    def __neg__(self) -> "Value":
        return self.ns.node("Neg", self)


class OnnxNamespace(Namespace):
    """Appends nodes and initializers to `model.graph`, at opset 18 or later.

    Equal nodes and equal constants are written once: two scores emitted through one namespace share the cast of the
    logits, their maximum, their log-sum-exp and whatever else both formulas mention.
    """

    def __init__(self, model: onnx.ModelProto, prefix: str = "score") -> None:
        self.graph = model.graph
        self.prefix = prefix
        self._taken = _names(model.graph)
        self._nodes: dict[tuple, tuple[str, ...]] = {}
        self._constants: dict[tuple, str] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._uncast: dict[str, Value] = {}

    def value(self, name: str) -> Value:
        """An existing value of the graph as an operand."""
        return Value(self, name)

    def node(self, op: str, *inputs: Operand, outputs: int = 1, output: int = 0, **attributes: Any) -> Value:
        """The result of an operator; an equal node that is already there is reused."""
        names = tuple(self._operand(x) for x in inputs)
        key = (op, names, tuple(sorted(attributes.items())))
        if key not in self._nodes:
            made = tuple(self._fresh(op) for _ in range(outputs))
            self.graph.node.append(helper.make_node(op, names, made, name=made[0], **attributes))
            self._nodes[key] = made
        return Value(self, self._nodes[key][output])

    def constant(self, value: np.ndarray | float) -> Value:
        array = value if isinstance(value, np.ndarray) else np.asarray(value, dtype=np.float64)
        key = (array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).digest())
        if key not in self._constants:
            self._constants[key] = self._fresh("theta")
            self._shapes[self._constants[key]] = array.shape
            self.graph.initializer.append(numpy_helper.from_array(array, self._constants[key]))
        return Value(self, self._constants[key])

    def float64(self, x: Value) -> Value:
        """A signal of any float type as float64."""
        cast = self.node("Cast", x, to=TensorProto.DOUBLE)
        self._uncast[cast.name] = x
        return cast

    def single(self, x: Array) -> Value:
        return self.node("Cast", x, to=TensorProto.FLOAT)

    def double(self, x: Array) -> Value:
        return self.node("Cast", x, to=TensorProto.DOUBLE)

    def exp(self, x: Array) -> Value:
        return self.node("Exp", x)

    def log(self, x: Array) -> Value:
        return self.node("Log", x)

    def sqrt(self, x: Array) -> Value:
        return self.node("Sqrt", x)

    def abs(self, x: Array) -> Value:
        return self.node("Abs", x)

    def power(self, x: Array, exponent: Array | float) -> Value:
        return self.node("Pow", x, exponent)

    def minimum(self, x: Array, y: Array | float) -> Value:
        return self.node("Min", x, y)

    def maximum(self, x: Array, y: Array | float) -> Value:
        return self.node("Max", x, y)

    def equal(self, x: Array, y: Array | float) -> Value:
        return self.node("Equal", x, y)

    def greater_equal(self, x: Array, y: Array | float) -> Value:
        return self.node("GreaterOrEqual", x, y)

    def where(self, condition: Array, x: Array | float, y: Array | float) -> Value:
        return self.node("Where", condition, x, y)

    def max(self, x: Array, *, keepdims: bool = False) -> Value:
        return self._reduce("ReduceMax", x, keepdims)

    def min(self, x: Array, *, keepdims: bool = False) -> Value:
        return self._reduce("ReduceMin", x, keepdims)

    def sum(self, x: Array, *, keepdims: bool = False) -> Value:
        return self._reduce("ReduceSum", x, keepdims)

    def mean(self, x: Array, *, keepdims: bool = False) -> Value:
        return self._reduce("ReduceMean", x, keepdims)

    def logsumexp(self, x: Array, *, keepdims: bool = False) -> Value:
        return self._reduce("ReduceLogSumExp", x, keepdims)

    def sum_squares(self, x: Array, *, keepdims: bool = False) -> Value:
        return self._reduce("ReduceSumSquare", x, keepdims)

    def norm1(self, x: Array, *, keepdims: bool = False) -> Value:
        return self._reduce("ReduceL1", x, keepdims)

    def norm(self, x: Array, *, keepdims: bool = False) -> Value:
        return self._reduce("ReduceL2", x, keepdims)

    def softmax(self, x: Array) -> Value:
        return self.node("Softmax", x, axis=-1)

    def argmax(self, x: Array, *, keepdims: bool = False) -> Value:
        # A cast to float64 keeps the order, so the graph's own label and the scores share one node.
        return self.node("ArgMax", self._uncast.get(x.name, x), axis=-1, keepdims=int(keepdims))

    def others(self, z: Array, n_classes: int) -> Value:
        if n_classes > SMALL_TABLE:
            return self.where(self.is_top(z, n_classes), MASKED, z)
        # One node less at the sizes where a node's overhead is what a score costs.
        return self.node("Add", z, self.take(np.where(np.eye(n_classes, dtype=bool), MASKED, 0.0), self.argmax(z)))

    def top(self, x: Array, k: int) -> Value:
        return self.node("TopK", x, np.array([k]), outputs=2, axis=-1)

    def top_indices(self, x: Array, k: int) -> Value:
        return self.node("TopK", x, np.array([k]), outputs=2, output=1, axis=-1)

    def column(self, x: Array, index: int) -> Value:
        return self.node("Gather", x, np.array(index, dtype=np.int64), axis=1)

    def take(self, table: Array, rows: Array) -> Value:
        return self.node("Gather", table, rows, axis=0)

    def take_along(self, x: Array, columns: Array) -> Value:
        return self.node("GatherElements", x, columns, axis=1)

    def batch_dot(self, tables: Array, x: Array) -> Value:
        column = self.node("Unsqueeze", x, np.array([2]))
        return self.node("Squeeze", self.node("MatMul", tables, column), np.array([2]))

    def class_dot(self, tables: Array, x: Array) -> Value:
        classes, rank, dim = self.shape(tables)
        flat = self.node("Reshape", tables, np.array([classes * rank, dim]))
        return self.node("Reshape", self.matmul_t(x, flat), np.array([-1, classes, rank]))

    def shape(self, constant: Value) -> tuple[int, ...]:
        """Sizes of a constant, which are known while the graph is built."""
        return self._shapes[constant.name]

    def batch_combine(self, tables: Array, weights: Array) -> Value:
        row = self.node("Unsqueeze", weights, np.array([1]))
        return self.node("Squeeze", self.node("MatMul", row, tables), np.array([1]))

    def own_projection(self, tables: Array, label: Array, x: Array) -> Value:
        own = self.take(tables, label)
        return self.batch_combine(own, self.batch_dot(own, x))

    def matmul_t(self, x: Array, table: Array) -> Value:
        return self.node("Gemm", x, table, transB=1)

    def affine(self, x: Array, weight: Array, bias: Array) -> Value:
        return self.node("Gemm", x, weight, bias, transB=1)

    def _reduce(self, op: str, x: Value, keepdims: bool) -> Value:
        return self.node(op, x, np.array([-1]), keepdims=int(keepdims))

    def _operand(self, x: Operand) -> str:
        return x.name if isinstance(x, Value) else self.constant(x).name

    def _fresh(self, stem: str) -> str:
        n = len(self._taken)
        while (name := f"{self.prefix}/{stem.lower()}_{n}") in self._taken:
            n += 1
        self._taken.add(name)
        return name


def _names(graph: onnx.GraphProto) -> set[str]:
    """Every name in use, so that appended nodes never clash with the classifier's."""
    taken = {value.name for value in (*graph.input, *graph.output, *graph.value_info)}
    taken |= {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        taken |= {node.name, *node.input, *node.output}
    return taken
