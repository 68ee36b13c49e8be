"""Ranks against what other people's code and slower definitions say."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from calibration.report.ranks import holm, rank_methods

ties = st.integers(0, 10_000).flatmap(
    lambda seed: st.tuples(st.just(seed), st.integers(2, 8), st.integers(3, 6), st.sampled_from([3, 50]))
)


def _values(seed: int, blocks: int, methods: int, levels: int) -> np.ndarray:
    """Few levels make many ties."""
    return np.random.default_rng(seed).integers(0, levels, (blocks, methods)).astype(float)


def _differ(values: np.ndarray) -> bool:
    return any(len(set(row)) > 1 for row in values.tolist())


@settings(max_examples=60, deadline=None)
@given(ties)
def test_friedman_is_scipys(shape: tuple[int, int, int, int]) -> None:
    values = _values(*shape)
    found = rank_methods([str(i) for i in range(values.shape[1])], values)
    if not _differ(values):
        assert (found.friedman, found.friedman_p) == (0.0, 1.0)
        return
    q, p = stats.friedmanchisquare(*values.T)
    assert found.friedman == pytest.approx(q, abs=1e-9)
    assert found.friedman_p == pytest.approx(p, rel=1e-7)
    assert found.average_rank == pytest.approx(stats.rankdata(-values, axis=1).mean(axis=0))


@settings(max_examples=60, deadline=None)
@given(ties)
def test_iman_davenport_is_the_f_test_of_a_two_way_anova_on_ranks(shape: tuple[int, int, int, int]) -> None:
    values = _values(*shape)
    ranks = stats.rankdata(-values, axis=1)
    n, k = ranks.shape
    between = n * ((ranks.mean(axis=0) - ranks.mean()) ** 2).sum()
    rest = ((ranks - ranks.mean(axis=0) - ranks.mean(axis=1)[:, None] + ranks.mean()) ** 2).sum()
    if rest < 1e-9 or not _differ(values):
        return
    f = (between / (k - 1)) / (rest / ((n - 1) * (k - 1)))
    found = rank_methods([""] * k, values)
    assert found.iman_davenport == pytest.approx(f, rel=1e-7, abs=1e-9)
    assert found.iman_davenport_p == pytest.approx(stats.f.sf(f, k - 1, (n - 1) * (k - 1)), rel=1e-6, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(ties)
def test_conover_is_the_least_significant_difference_on_ranks(shape: tuple[int, int, int, int]) -> None:
    """A t test of two means with the residual of the two-way ANOVA, then Holm over all pairs by a plain loop."""
    values = _values(*shape)
    ranks = stats.rankdata(-values, axis=1)
    n, k = ranks.shape
    freedom = (n - 1) * (k - 1)
    rest = ((ranks - ranks.mean(axis=0) - ranks.mean(axis=1)[:, None] + ranks.mean()) ** 2).sum() / freedom
    if rest < 1e-9:
        return
    means = ranks.mean(axis=0)
    raw = {
        (i, j): 2 * stats.t.sf(abs(means[i] - means[j]) / np.sqrt(2 * rest / n), freedom)
        for i, j in combinations(range(k), 2)
    }
    found = rank_methods([""] * k, values).adjusted_p
    for (i, j), p in _holm_loop(raw).items():
        assert found[i, j] == found[j, i] == pytest.approx(p, rel=1e-6, abs=1e-12)
    assert (np.diag(found) == 1.0).all()


def _holm_loop(raw: dict[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    adjusted, running = {}, 0.0
    for place, pair in enumerate(sorted(raw, key=lambda pair: raw[pair])):
        running = max(running, min(1.0, raw[pair] * (len(raw) - place)))
        adjusted[pair] = running
    return adjusted


def test_holm_of_a_known_example() -> None:
    p = np.ones((3, 3))
    for (i, j), value in {(0, 1): 0.01, (0, 2): 0.04, (1, 2): 0.03}.items():
        p[i, j] = p[j, i] = value
    adjusted = holm(p)
    assert [adjusted[0, 1], adjusted[1, 2], adjusted[0, 2]] == pytest.approx([0.03, 0.06, 0.06])


@settings(max_examples=60, deadline=None)
@given(ties)
def test_cliques_are_the_maximal_sets_without_a_difference(shape: tuple[int, int, int, int]) -> None:
    values = _values(*shape)
    k = values.shape[1]
    found = rank_methods([""] * k, values)
    alike = found.adjusted_p >= found.alpha if found.significant else np.ones((k, k), bool)
    sets = [
        set(members)
        for size in range(1, k + 1)
        for members in combinations(range(k), size)
        if all(alike[i, j] for i, j in combinations(members, 2))
    ]
    maximal = [each for each in sets if not any(each < other for other in sets)]
    assert sorted(sorted(clique) for clique in found.cliques) == sorted(sorted(each) for each in maximal)
    best = [found.average_rank[clique[0]] for clique in found.cliques]
    assert best == sorted(best)


def test_methods_that_do_not_differ_form_one_clique() -> None:
    values = np.array([[1.0, 2, 3], [3, 2, 1], [2, 3, 1], [2, 1, 3]])
    found = rank_methods(["a", "b", "c"], values)
    assert not found.significant
    assert [sorted(clique) for clique in found.cliques] == [[0, 1, 2]]


def test_blocks_that_all_agree_have_an_infinite_f_and_tell_everything_apart() -> None:
    found = rank_methods(["a", "b", "c"], np.array([[3.0, 2, 1]] * 4))
    assert found.iman_davenport == np.inf
    assert found.iman_davenport_p == 0.0
    assert found.cliques == ((0,), (1,), (2,))


@pytest.mark.parametrize("shape", [(1, 3), (2, 2)])
def test_too_little_to_rank(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 2 blocks and 3 methods"):
        rank_methods(["x"] * shape[1], np.ones(shape))
