"""Splits: disjoint, complete, stratified, seeded, and blind to the order of rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.errors import SelectionRefused
from calibration.splits import parse_fractions, plain_sample, split
from calibration.table import ScoreTable


def ids(table: ScoreTable) -> list[str]:
    assert table.id is not None
    return table.id.tolist()


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(0, 120),
    seed=st.integers(0, 5),
    fractions=st.sampled_from([(0.5, 0.5), (0.3, 0.4, 0.3), (0.1, 0.9)]),
)
def test_every_row_is_in_exactly_one_part(make, n: int, seed: int, fractions: tuple[float, ...]) -> None:  # type: ignore[no-untyped-def]
    table = make(n, seed=seed)
    parts = split(table, fractions, seed).named()
    assert sorted(i for part in parts.values() for i in ids(part)) == sorted(ids(table))


def test_parts_keep_the_shares_of_every_stratum(table: ScoreTable) -> None:
    parts = split(table, (0.3, 0.4, 0.3), 1).named()
    assert table.group is not None
    for group in np.unique(table.group):
        whole = int((table.group == group).sum())
        for part, share in zip(parts.values(), (0.3, 0.4, 0.3), strict=True):
            assert part.group is not None
            assert abs(int((part.group == group).sum()) - share * whole) <= 1


def test_the_order_of_rows_does_not_matter_and_the_seed_does(table: ScoreTable) -> None:
    shuffled = table.take(np.random.default_rng(3).permutation(len(table)))
    first, second = (split(each, (0.5, 0.5), 7) for each in (table, shuffled))
    assert first.selection.fingerprint() == second.selection.fingerprint()
    assert set(ids(first.selection)) == set(ids(second.selection))
    assert set(ids(split(table, (0.5, 0.5), 8).selection)) != set(ids(first.selection))


def test_names_of_rows_do_not_matter(table: ScoreTable) -> None:
    renamed = ScoreTable(**(table.columns() | {"id": np.array([f"z{i}" for i in range(len(table))][::-1])}))
    before, after = (split(each, (0.5, 0.5), 7).selection for each in (table, renamed))
    np.testing.assert_array_equal(before.s_id, after.s_id)


def test_rows_with_one_id_stay_together(table: ScoreTable) -> None:
    doubled = ScoreTable.concat([table, table, table.take(slice(0, 500))])
    parts = [set(ids(part)) for part in split(doubled, (0.3, 0.4, 0.3), 0).named().values()]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(table)


def test_outcomes_are_not_balanced_between_parts(make) -> None:  # type: ignore[no-untyped-def]
    """Stratifying by `correct` would tie the parts together; their error counts must vary like independent draws."""
    table = make(2000, ood=0.0, error=0.2)
    errors = [int((~split(table, (0.5, 0.5), seed).selection.correct).sum()) for seed in range(60)]
    wrong = int((~table.correct).sum())
    expected = np.sqrt(wrong / 4 * (1 - wrong / 2000))
    assert 0.6 * expected < np.std(errors) < 1.6 * expected


@pytest.mark.parametrize("text", ["50", "50/50/50", "a/b", "50/0", "-1/2", "nan/1", ""])
def test_bad_shares_are_refused(text: str) -> None:
    with pytest.raises(SelectionRefused, match=r"--split takes 2 positive shares \(selection/evaluation\)"):
        parse_fractions(text, 2)


def test_shares_need_not_add_up_to_a_hundred() -> None:
    assert parse_fractions("1/2/1", 3) == (0.25, 0.5, 0.25)


def test_a_plain_sample_has_the_mix_that_the_weights_describe(make) -> None:  # type: ignore[no-untyped-def]
    table = make(20000, ood=0.5).with_prevalence(0.1)
    plain = plain_sample(table, 0)
    assert plain.weight is None
    assert plain.n_ood / len(plain) == pytest.approx(0.1, abs=0.015)
    assert plain.n_id == table.n_id
    assert plain_sample(plain, 0) is plain
    assert plain_sample(table, 0).fingerprint() == plain.fingerprint()
    assert plain_sample(table.with_prevalence(0.0), 0).n_ood == 0


def test_ids_of_hundreds_of_characters_are_split_too() -> None:
    n = 45_000
    table = ScoreTable.from_columns(
        s_id=np.arange(n), s_ood=np.arange(n), is_id=np.arange(n) % 2 == 0, correct=np.arange(n) % 2 == 0,
        id=[f"{i:0420d}" for i in range(n)],
    )  # fmt: skip
    parts = split(table, (0.5, 0.5), seed=0)
    assert len(parts.selection) + len(parts.evaluation) == n
    assert not set(parts.selection.id.tolist()) & set(parts.evaluation.id.tolist())  # type: ignore[union-attr]


def test_rows_without_an_id_are_not_one_sample(table: ScoreTable) -> None:
    some = ScoreTable(**(table.columns() | {"id": np.where(table.is_id, table.id, "")}))
    parts = split(some, (0.5, 0.5), 0)
    assert parts.selection.n_ood == pytest.approx(table.n_ood / 2, abs=1)
    assert plain_sample(some, 0) is some


def test_a_plain_sample_has_one_row_of_each_id(table: ScoreTable) -> None:
    views = table.take(np.repeat(np.arange(len(table)), 3))
    plain = plain_sample(views, 0)
    assert sorted(plain.id.tolist()) == sorted(table.id.tolist())  # type: ignore[union-attr]
    weighted = plain_sample(views.with_prevalence(0.1), 0)
    assert weighted.weight is None
    assert len(set(weighted.id.tolist())) == len(weighted)  # type: ignore[union-attr]
