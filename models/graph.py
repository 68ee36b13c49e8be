"""Small questions to an ONNX graph, and small edits of one; nothing here knows what a classifier is."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

_EVALUATED = 21
FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


class GraphIndex:
    """Who makes a value, what it is made from, and its content where that does not depend on the input."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self._producers = {name: node for node in model.graph.node for name in node.output if name}
        self._order = {name: i for i, node in enumerate(model.graph.node) for name in node.output if name}
        self._initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self._varying = _varying(model.graph)
        self._constants: dict[str, NDArray[Any] | None] = {}

    def producer(self, name: str) -> NodeProto | None:
        """The node that computes a value; None for inputs and stored weights."""
        return self._producers.get(name)

    def position(self, name: str) -> int:
        """The place of the value's node in the graph's order; −1 for inputs and stored weights."""
        return self._order.get(name, -1)

    def constant(self, name: str) -> NDArray[Any] | None:
        """The content of a value that is the same for every input (a weight, or nodes over weights), else None."""
        if name not in self._constants:
            self._constants[name] = self._evaluate(name)
        return self._constants[name]

    def upstream(self, name: str, limit: int) -> list[str]:
        """The computed values that `name` is made from, nearest first, itself included, at most `limit`."""
        seen, queue = {name}, deque([name])
        found: list[str] = []
        while queue and len(found) < limit:
            value = queue.popleft()
            node = self.producer(value)
            if node is None:
                continue
            found.append(value)
            fresh = [source for source in captured_inputs(node) if source not in seen]
            seen.update(fresh)
            queue.extend(fresh)
        return found

    def _evaluate(self, name: str) -> NDArray[Any] | None:
        if name in self._initializers:
            return numpy_helper.to_array(self._initializers[name])
        if name in self._varying or name not in self._producers:
            return None
        nodes, weights = self._constant_part(name)
        graph = helper.make_graph(nodes, "constant", [], [helper.make_empty_tensor_value_info(name)], weights)
        model = helper.make_model(graph, opset_imports=self._evaluation_opsets())
        try:
            outputs: Any = ReferenceEvaluator(model).run(None, {})
            return np.asarray(outputs[0])
        except Exception:  # an operator without a reference implementation: the value stays unknown
            return None

    def _evaluation_opsets(self) -> list[onnx.OperatorSetIdProto]:
        """The model's operator sets; the default one at least at 21, where the evaluator knows DequantizeLinear."""
        versions = {entry.domain: entry.version for entry in self.model.opset_import}
        versions[""] = max(versions.get("", 0), _EVALUATED)
        return [helper.make_opsetid(domain, version) for domain, version in versions.items()]

    def _constant_part(self, name: str) -> tuple[list[NodeProto], list[TensorProto]]:
        """The nodes and weights that make a constant value."""
        values = self.upstream(name, len(self._producers))
        nodes = {self.position(value): self._producers[value] for value in values}
        sources = {source for node in nodes.values() for source in captured_inputs(node)}
        weights = [tensor for source, tensor in self._initializers.items() if source in sources]
        return [nodes[i] for i in sorted(nodes)], weights


def attributes(node: NodeProto) -> dict[str, Any]:
    """The attributes of a node as Python values."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def before_rounding(index: GraphIndex, node: NodeProto) -> str | None:
    """What a QuantizeLinear and the DequantizeLinear after it round, given the latter."""
    first = index.producer(node.input[0]) if node.op_type == "DequantizeLinear" else None
    return str(first.input[0]) if first is not None and first.op_type == "QuantizeLinear" else None


def captured_inputs(node: NodeProto) -> list[str]:
    """The values a node reads: its inputs, and what the bodies of If, Loop and Scan take from outside."""
    names = [name for name in node.input if name]
    for body in _bodies(node):
        inside = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
        for inner in body.node:
            names += [name for name in captured_inputs(inner) if name not in inside]
            inside.update(inner.output)
        names += [value.name for value in body.output if value.name not in inside]
    return names


def prune(graph: onnx.GraphProto) -> None:
    """Drop the nodes and weights that no output needs."""
    needed = {value.name for value in graph.output}
    useless = []
    for i in reversed(range(len(graph.node))):
        node = graph.node[i]
        if needed.intersection(node.output):
            needed.update(captured_inputs(node))
        else:
            useless.append(i)
    _drop(graph.node, useless)
    _drop(graph.initializer, [i for i, tensor in enumerate(graph.initializer) if tensor.name not in needed])
    computed = {name for node in graph.node for name in node.output}
    _drop(graph.value_info, [i for i, value in enumerate(graph.value_info) if value.name not in needed | computed])


def drop_unused_inputs(model: onnx.ModelProto, outputs: Iterable[str]) -> None:
    """Drop the inputs that none of the named values depends on."""
    _, needed = _behind(model.graph, outputs, None)
    _drop(model.graph.input, [i for i, value in enumerate(model.graph.input) if value.name not in needed])


def rename_values(graph: onnx.GraphProto, names: Mapping[str, str]) -> dict[str, str]:
    """Give values other names everywhere; the answer maps the ones that exist to their new name."""
    existing = value_names(graph)
    renamed = {old: fresh_name(existing, new) for old, new in names.items() if old in existing}
    if renamed:
        _rename(graph, renamed)
    return renamed


def value_types(model: onnx.ModelProto) -> dict[str, int]:
    """The element type of every value whose type is declared or can be inferred."""
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # inference is a help, never a condition
        graph = model.graph
    for value in (*graph.value_info, *graph.input, *graph.output):
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type:
            types[value.name] = value.type.tensor_type.elem_type
    return types


def value_names(graph: onnx.GraphProto) -> set[str]:
    """Every value name in use, the ones inside bodies included."""
    names = {value.name for value in (*graph.input, *graph.output)} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        names.update(name for name in (*node.input, *node.output) if name)
        for body in _bodies(node):
            names |= value_names(body)
    return names


def fresh_name(taken: set[str], wanted: str) -> str:
    """`wanted`, or the first `wanted_2`, `wanted_3`… that nothing else uses; the answer counts as taken from now on."""
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}_{count}"
    taken.add(name)
    return name


def append_node(model: onnx.ModelProto, op_type: str, inputs: Iterable[str], wanted: str, **attrs: Any) -> str:
    """Append a one-output node of the default domain; the answer is the name of its value."""
    output = fresh_name(value_names(model.graph), wanted)
    model.graph.node.append(helper.make_node(op_type, list(inputs), [output], name=output, **attrs))
    return output


def append_constant(model: onnx.ModelProto, value: NDArray[Any], wanted: str) -> str:
    """Store a weight; the answer is its name."""
    name = fresh_name(value_names(model.graph), wanted)
    model.graph.initializer.append(numpy_helper.from_array(value, name))
    return name


def part(
    model: onnx.ModelProto, outputs: Iterable[str], source: onnx.ValueInfoProto | None = None
) -> onnx.ModelProto | None:
    """The part of the model that makes the named values, from its input or from `source` instead.

    None where the values need the input although `source` was to take its place.
    """
    wanted = list(dict.fromkeys(outputs))
    nodes, needed = _behind(model.graph, wanted, source.name if source else None)
    if source and any(value.name in needed and value.name != source.name for value in model.graph.input):
        return None
    graph = helper.make_graph(
        nodes,
        model.graph.name or "part",
        [source] if source else model.graph.input,
        [helper.make_empty_tensor_value_info(name) for name in wanted],
        [tensor for tensor in model.graph.initializer if tensor.name in needed],
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def with_outputs(model: onnx.ModelProto, outputs: Iterable[str]) -> onnx.ModelProto:
    """The model reduced to what makes the named values."""
    reduced = part(model, outputs)
    assert reduced is not None
    return reduced


def _behind(graph: onnx.GraphProto, outputs: Iterable[str], source: str | None) -> tuple[list[NodeProto], set[str]]:
    """The nodes that make the outputs, back to `source`, in graph order, and every value they need."""
    needed, nodes = set(outputs), []
    for node in reversed(graph.node):
        if needed.intersection(node.output) and source not in node.output:
            nodes.append(node)
            needed.update(captured_inputs(node))
    return nodes[::-1], needed


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in graph.node:
        for field in (node.input, node.output):
            for i, name in enumerate(field):
                if name in names:
                    field[i] = names[name]
        for body in _bodies(node):
            _rename(body, names)


def _bodies(node: NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def _varying(graph: onnx.GraphProto) -> set[str]:
    """The values that depend on an input or on chance."""
    varying = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        random = node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial")
        if random or not varying.isdisjoint(captured_inputs(node)):
            varying.update(node.output)
    varying.discard("")
    return varying


def _drop(field: Any, useless: Iterable[int]) -> None:
    for i in sorted(useless, reverse=True):
        del field[i]
