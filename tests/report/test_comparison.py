"""Several tables: values, differences and ranks."""

from collections.abc import Callable

import numpy as np
import pytest

from calibration.metrics import compare, ds_aurc, ds_f1, group_tables
from calibration.report import Analysis
from calibration.report.comparison import compare_tables
from calibration.report.document import ComparisonSection
from calibration.report.tables import NamedTable
from calibration.table import ScoreTable

Table = Callable[..., ScoreTable]


def _compared(*tables: ScoreTable) -> ComparisonSection:
    return compare_tables([NamedTable(f"table {i}", each) for i, each in enumerate(tables)])


def test_values_are_those_of_the_metrics(table: Table) -> None:
    first, second = table(), table(shift=1.0)
    found = _compared(first, second)
    assert [row.name for row in found.methods] == ["table 0", "table 1"]
    assert list(found.methods[0].values) == ["all", "far", "near"]
    assert found.methods[1].values["all"]["ds_f1"] == ds_f1(second).value
    near = group_tables(first)["near"]
    assert found.methods[0].values["near"]["ds_aurc"] == ds_aurc(near, "envelope")


def test_differences_are_paired(table: Table) -> None:
    """The same resamples as a comparison of two tables alone, and the interval that comes with them."""
    best, other = table(shift=2.5), table(shift=1.0)
    found = {gap.metric: gap for gap in _compared(best, other).differences}
    alone = compare(other, best, lambda each: ds_f1(each).value, 200).difference
    gap = found["ds_f1"]
    assert (gap.method, gap.against) == ("table 1", "table 0")
    assert (gap.difference, gap.low, gap.high) == pytest.approx((alone.estimate, alone.low, alone.high))
    assert gap.high < 0.0
    assert found["ds_aurc"].low > 0.0


def test_a_table_does_not_differ_from_itself(table: Table) -> None:
    gap = _compared(table(), table()).differences[0]
    assert (gap.low, gap.difference, gap.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n": 398}, "398 and 400 rows"),
        ({"id": np.array([f"other-{i}" for i in range(400)])}, "row 1 is 'other-0' in one and 'sample-0' in the other"),
        ({"weight": np.full(400, 2.0)}, "do not hold the same samples"),
    ],
)
def test_other_samples_cannot_be_paired(table: Table, changes: dict[str, object], words: str) -> None:
    found = _compared(table(), table(**changes))
    assert found.differences == []
    assert found.unpaired is not None
    assert words in found.unpaired


def test_ranks_over_groups_and_metrics(table: Table) -> None:
    found = _compared(*(table(200, shift=shift) for shift in (3.0, 1.5, 0.0)))
    assert found.ranks is not None
    assert found.ranks.blocks == ["far · ds_f1", "far · ds_aurc", "near · ds_f1", "near · ds_aurc"]
    assert [row.average_rank for row in found.methods] == [1.0, 2.0, 3.0]
    assert found.ranks.iman_davenport is None
    assert found.ranks.cliques == [["table 0"], ["table 1"], ["table 2"]]


def test_two_tables_are_too_few_to_rank(table: Table) -> None:
    found = _compared(table(), table(shift=1.0))
    assert found.ranks is None
    assert found.no_ranks == "A rank test needs 3 tables and 2 blocks (group × metric); there are 2 and 4."


def test_tables_without_common_groups_are_compared_as_wholes(table: Table, report: Callable[..., Analysis]) -> None:
    renamed = [table(shift=2.0 - i, group=np.char.add(table().group, str(i))) for i in range(3)]
    found = report(*renamed).document.comparison
    assert found is not None
    assert list(found.methods[0].values) == ["all"]
    assert any("left out: far0, far1, far2, near0, near1" in note for note in found.notes)
    assert found.ranks is not None
    assert found.ranks.blocks == ["all · ds_f1", "all · ds_aurc"]


def test_tables_without_groups_or_ood(table: Table) -> None:
    id_only = [table(group=None, shift=shift).take(np.arange(200)) for shift in (2.0, 1.0, 0.0)]
    found = _compared(*id_only)
    assert found.methods[0].values["all"]["ood_auroc"] is None
    assert found.ranks is not None


def test_a_group_may_be_called_all(table: Table) -> None:
    group = np.where(table().is_id, "id", "all")
    found = _compared(table(group=group), table(group=group, shift=1.0))
    assert list(found.methods[0].values) == ["all", "group all"]
