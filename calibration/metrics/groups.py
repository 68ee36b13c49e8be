"""A table by its `group` column: one table a group, and averages over groups as papers report them."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from calibration.table import ScoreTable

_NOT_AVERAGED = frozenset(
    {"n_id", "n_ood", "n_not_finite", "tau", "tau_id", "tau_ood", "intervals", "undefined", "notes"}
)


def group_tables(table: ScoreTable) -> dict[str, ScoreTable]:
    """One table a group, by name.

    An OOD group is judged together with the ID rows of the same name, or with all ID rows where none carries it.
    Where ID rows carry more than one name, those without OOD rows are judged alone. Rows without a name are in none.
    """
    if table.group is None:
        return {}
    names_id, names_ood = (_names(table.group[mask]) for mask in (table.is_id, ~table.is_id))
    tables = {}
    for name in sorted(names_ood):
        named = table.group == name
        tables[name] = table.take(named if name in names_id else named & ~table.is_id | table.is_id)
    if len(names_id) > 1:
        for name in sorted(names_id - names_ood):
            tables[name] = table.take((table.group == name) & table.is_id)
    return dict(sorted(tables.items()))


def _names(column: np.ndarray) -> set[str]:
    return set(np.unique(column).tolist()) - {""}


def average_names(groups: Iterable[str]) -> dict[str, list[str]]:
    """Which groups are averaged: all of them, and those that share what stands before a slash (`near/cifar10`)."""
    members = list(groups)
    averages: dict[str, list[str]] = {}
    for name in members:
        prefix, slash, _ = name.partition("/")
        if slash and prefix not in members:
            averages.setdefault(prefix, []).append(name)
    if len(members) > 1:
        averages["all"] = members
    return averages


def averaged(documents: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of every metric; None where one of the documents has none. Counts and thresholds have no average."""
    first = documents[0]
    result: dict[str, Any] = {}
    for key, value in first.items():
        if key in _NOT_AVERAGED:
            continue
        values = [document[key] for document in documents]
        if isinstance(value, Mapping):
            result[key] = averaged(values)
        else:
            result[key] = None if any(v is None for v in values) else float(np.mean(values))
    return result
