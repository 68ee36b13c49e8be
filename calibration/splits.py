"""Splitting a score table: stratified, seeded, and the same whatever the order of its rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibration.errors import SelectionRefused
from calibration.table import ScoreTable

if TYPE_CHECKING:
    import pyarrow as pa

PARTS = {2: ("selection", "evaluation"), 3: ("selection", "certification", "evaluation")}
STRATA = ("is_id", "group")
# Streams of random numbers that share the user's seed must not share their numbers.
_SPLITTING, _THINNING, _ONE_OF_EACH = 1, 2, 4  # 3 is the bootstrap's, in resample.py


@dataclass(frozen=True)
class Splits:
    """Disjoint parts of one table: thresholds are chosen on the first, certified on the second, judged on the last."""

    selection: ScoreTable
    evaluation: ScoreTable
    certification: ScoreTable | None = None

    def named(self) -> dict[str, ScoreTable]:
        """The parts by name, in the order they are used."""
        parts = {
            "selection": self.selection,
            "certification": self.certification,
            "evaluation": self.evaluation,
        }
        return {name: part for name, part in parts.items() if part is not None}


def parse_fractions(text: str, parts: int) -> tuple[float, ...]:
    """`50/50` or `30/40/30` as fractions that add up to one."""
    names = "/".join(PARTS[parts])
    try:
        shares = [float(share) for share in text.split("/")]
    except ValueError:
        shares = []
    if len(shares) != parts or not all(np.isfinite(shares)) or min(shares) <= 0:
        example = "50/50" if parts == 2 else "30/40/30"
        raise SelectionRefused(
            f"--split takes {parts} positive shares ({names}) such as {example} for this method; {text!r} arrived"
        )
    total = sum(shares)
    return tuple(share / total for share in shares)


def split(table: ScoreTable, fractions: Sequence[float], seed: int) -> Splits:
    """Cut a table into two or three parts.

    Stratified by what is fixed before any outcome is known (ID or OOD, and the group): stratifying by `correct` would
    tie the error counts of the parts together and with it break the certificate. Rows that share an `id` stay in one
    part. The result depends on the set of rows and the seed, not on their order.
    """
    order = canonical_order(table)
    part = np.empty(len(table), dtype=np.int64)
    part[order] = _assign(table, order, fractions, seed)
    pieces = [table.take(order[part[order] == index]) for index in range(len(fractions))]
    return Splits(**dict(zip(PARTS[len(fractions)], pieces, strict=True)))


def canonical_order(table: ScoreTable) -> NDArray[np.intp]:
    """An order of the rows that only their contents decide; rows that are equal in all else go by their id."""
    keys: list[NDArray] = [table.weights, table.correct, table.is_id, table.s_id, table.s_ood]
    keys += [_codes(column) for column in (table.prediction, table.label, table.group) if column is not None]
    order = np.lexsort(keys)
    if table.id is None:
        return order
    same = np.ones(len(order) + 1, dtype=bool)  # whether a row equals the one before it; the ends equal nothing
    same[[0, -1]] = False
    for key in keys:
        ordered = key[order]
        same[1:-1] &= (ordered[1:] == ordered[:-1]) | (ordered[1:] != ordered[1:])  # two NaN count as equal
    tied = np.flatnonzero(same[1:] | same[:-1])
    run = np.cumsum(~same[:-1])[tied]
    order[tied] = order[tied][np.lexsort((_codes(table.id[order[tied]]), run))]
    return order


def strata(table: ScoreTable) -> NDArray[np.int64]:
    """A number for each combination of ID/OOD and group."""
    if table.group is None:
        return table.is_id.astype(np.int64)
    codes = 2 * _codes(table.group) + table.is_id
    return np.unique(codes, return_inverse=True)[1]


def _assign(table: ScoreTable, order: NDArray, fractions: Sequence[float], seed: int) -> NDArray[np.int64]:
    """The part of every row, in canonical order."""
    rows = strata(table)[order]
    codes = _repeated(table)
    if codes is None:
        return _allot(rows, fractions, seed)
    _, first, unit = np.unique(codes[order], return_index=True, return_inverse=True)
    # Units are numbered by their first row in canonical order, so that renamed ids do not change the split.
    rank = np.argsort(np.argsort(first, kind="stable"), kind="stable")
    return _allot(rows[np.sort(first)], fractions, seed)[rank[unit]]


def _allot(stratum: NDArray[np.int64], fractions: Sequence[float], seed: int) -> NDArray[np.int64]:
    """Deal the members of each stratum out at random in the given shares, rounded to whole samples."""
    n = len(stratum)
    shuffled = np.lexsort((np.random.default_rng((seed, _SPLITTING)).permutation(n), stratum))
    sizes = np.bincount(stratum)
    start = np.cumsum(sizes) - sizes
    position = np.arange(n) - start[stratum[shuffled]]
    edges = np.rint(np.outer(np.cumsum(fractions)[:-1], sizes)).astype(np.int64)
    part = np.empty(n, dtype=np.int64)
    part[shuffled] = (position >= edges[:, stratum[shuffled]]).sum(axis=0)
    return part


def _repeated(table: ScoreTable) -> NDArray[np.int64] | None:
    """A number for each sample where rows share ids; None where every row is a sample of its own.

    An empty id is no id: rows that have none are not one sample.
    """
    if table.id is None:
        return None
    codes, names = _encoded(table.id)
    nameless = np.flatnonzero(table.id == "")
    if len(names) - bool(len(nameless)) + len(nameless) == len(table):
        return None
    codes[nameless] = len(names) + np.arange(len(nameless))
    return codes


def _codes(column: NDArray) -> NDArray[np.int64]:
    """Small integers in the order of the values, through Arrow, which is much faster on strings than numpy."""
    if column.dtype.kind in "iub":
        return column.astype(np.int64)
    codes, names = _encoded(column)
    rank = np.argsort(np.argsort(np.asarray(names.to_pylist(), dtype=str), kind="stable"), kind="stable")
    ordered: NDArray[np.int64] = rank[codes]
    return ordered


def _encoded(column: NDArray) -> "tuple[NDArray[np.int64], pa.Array]":
    """A number for each distinct string in the order they appear, and the strings."""
    import pyarrow as pa

    values = pa.array(column)  # chunked where the texts are long
    encoded = (values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary


def repeats_samples(table: ScoreTable) -> bool:
    """Whether rows share ids, so that they are not independent."""
    return _repeated(table) is not None


def has_weights(table: ScoreTable) -> bool:
    """Whether the rows count differently."""
    return table.weight is not None and len(table) > 0 and bool(np.ptp(table.weight) > 0)


def plain_sample(table: ScoreTable, seed: int) -> ScoreTable:
    """An unweighted sample of what the weights describe: each row is kept with probability weight / largest weight.

    Exact binomial statements need whole, equally likely, independent samples; rejection sampling gives them at the
    price of rows, and of rows that share an id (views of one sample, say) one is drawn.
    """
    if has_weights(table):
        weights = table.weights
        keep = np.random.default_rng((seed, _THINNING)).random(len(table)) * weights.max() < weights
        columns = table.take(keep).columns()
        columns.pop("weight")
        table = ScoreTable(**columns)
    codes = _repeated(table)
    if codes is None:
        return table
    order = np.random.default_rng((seed, _ONE_OF_EACH)).permutation(len(table))
    _, first = np.unique(codes[order], return_index=True)
    return table.take(np.sort(order[first]))
