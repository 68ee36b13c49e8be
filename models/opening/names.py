"""Class names that a model carries: in scikit-learn operators, or in its metadata."""

import ast
import json
from typing import Any

import onnx

from models.graph import GraphIndex, attributes

_ATTRIBUTES = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
_METADATA = ("classes", "class_names", "names", "labels", "id2label", "classes_names")


def class_names(model: onnx.ModelProto, n_classes: int) -> tuple[str, ...] | None:
    """One name a class, where the model tells them and their number fits."""
    for names in (*_from_nodes(model), *_from_metadata(model)):
        if len(names) == n_classes and len(set(names)) == n_classes:
            return names
    return None


def _from_nodes(model: onnx.ModelProto) -> list[tuple[str, ...]]:
    """A ZipMap's labels, the table that an ArgMax is looked up in, a classifier operator's labels; the last wins."""
    found = []
    index = GraphIndex(model)
    for node in reversed(model.graph.node):
        attrs = attributes(node)
        labels = next((attrs[key] for key in _ATTRIBUTES if attrs.get(key)), None)
        if labels is not None:
            found.append(tuple(_text(label) for label in labels))
        elif node.op_type == "ArrayFeatureExtractor" and (table := index.constant(node.input[0])) is not None:
            found.append(tuple(_text(label) for label in table.reshape(-1)))
    return found


def _from_metadata(model: onnx.ModelProto) -> list[tuple[str, ...]]:
    properties = {entry.key.lower(): entry.value for entry in model.metadata_props}
    read = (_parse(properties[key]) for key in _METADATA if key in properties)
    return [names for names in read if names]


def _parse(text: str) -> tuple[str, ...]:
    """A JSON or Python list, a mapping from index to name, or names separated by commas or lines."""
    value: Any = None
    for reader in (json.loads, ast.literal_eval):
        try:
            value = reader(text)
            break
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    if isinstance(value, dict):
        try:
            value = [value[key] for key in sorted(value, key=int)]
        except (TypeError, ValueError):
            return ()
    if isinstance(value, list | tuple):
        return tuple(_text(name) for name in value)
    return tuple(name.strip() for name in text.replace("\n", ",").split(",") if name.strip())


def _text(label: Any) -> str:
    return label.decode() if isinstance(label, bytes) else str(label)
