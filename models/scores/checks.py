"""The contract of a score, as checks that run on any of them.

    import pytest
    from models.scores.checks import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_score(check):
        check("my_score")

A check takes a spec in the command line's notation and raises AssertionError with what went wrong.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from models.errors import ScoreError
from models.signals import Head, Signals

from .alone import GraphScore
from .fitdata import FitBatch, FitData
from .fitted import FittedScore, fit_score
from .spec import ScoreSpec, parse_spec

RELATIVE = 1e-6
"""Largest relative difference between graph and definition."""
KENDALL = 0.9999
"""Smallest rank correlation between them, for a score that states why it cannot be exact."""


@dataclass(frozen=True)
class Case:
    """Signals of a made-up classifier: Gaussian classes behind a ReLU, its head, rows to fit on and rows to score."""

    fit: Signals
    labels: np.ndarray
    rows: Signals
    head: Head

    def data(self) -> FitData:
        return FitData.of(self.fit, self.labels, self.head)

    def fitted(self, spec: str) -> FittedScore:
        return fit_score(spec, None, self.data())


def case(classes: int = 6, dim: int = 20, fit: int = 240, rows: int = 120, seed: int = 0) -> Case:
    """A case with overlapping classes; a third of the rows to score lie away from all of them."""
    rng = np.random.default_rng(seed)
    centres = 2.0 * rng.normal(size=(classes, dim))
    head = Head(centres / 4.0 + 0.05 * rng.normal(size=(classes, dim)), 0.1 * rng.normal(size=classes), "gemm")
    labels = np.arange(fit) % classes
    inside = rng.integers(classes, size=rows)
    fit_features = _relu(centres[labels] + rng.normal(size=(fit, dim)))
    features = _relu(centres[inside] + rng.normal(size=(rows, dim)))
    features[::3] = _relu(2.0 * rng.normal(size=features[::3].shape))
    return Case(_signals(fit_features, head), labels, _signals(features, head), head)


def _relu(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0.0), dtype=np.float32)


def _signals(features: np.ndarray, head: Head) -> Signals:
    return Signals((features @ head.weight.T + head.bias).astype(np.float32), features)


def check_graph_equals_definition(spec: str) -> None:
    """ONNX Runtime gives what numpy defines, for few classes, two classes and a thousand."""
    for shape in (case(), case(classes=2, seed=1), case(classes=1000, dim=32, fit=3000, rows=64, seed=2)):
        assert_agree(shape.fitted(spec), shape.rows)


def check_batch_equals_single(spec: str) -> None:
    """A row's score does not depend on the rows it came with."""
    made = case(rows=24)
    fitted = made.fitted(spec)
    graph = GraphScore(fitted)
    columns = graph.columns(made.rows)
    alone = np.concatenate([graph.run(columns[i : i + 1]) for i in range(len(columns))])
    assert_close(graph.run(columns), alone, fitted, "the graph's batch and single rows differ")
    single = np.concatenate([fitted.compute(_row(made.rows, [i])) for i in range(len(columns))])
    np.testing.assert_allclose(fitted.compute(made.rows), single, rtol=1e-9, err_msg="numpy's batch and single differ")


def check_row_order(spec: str) -> None:
    """Neither the order of scored rows nor that of fit rows matters."""
    made = case()
    order = np.random.default_rng(3).permutation(len(made.rows))
    fitted = made.fitted(spec)
    scores = fitted.compute(made.rows)
    np.testing.assert_allclose(fitted.compute(_row(made.rows, order)), scores[order], rtol=1e-9)
    fit_order = np.random.default_rng(4).permutation(len(made.labels))
    again = fit_score(spec, None, FitData.of(_row(made.fit, fit_order), made.labels[fit_order], made.head))
    np.testing.assert_allclose(again.compute(made.rows), scores, rtol=1e-6, err_msg="the order of fit rows matters")


def check_constants_and_duplicates(spec: str) -> None:
    """Equal rows score equal, and rows without any contrast still have a finite score, in both places."""
    made = case()
    fitted = made.fitted(spec)
    plain = _row(made.rows, [0, 1, 0, 1])
    flat = Signals(np.full((2, 6), 3.0, np.float32), np.zeros((2, 20), np.float32))
    even = Signals(np.full((2, 6), -2.0, np.float32), np.ones((2, 20), np.float32))
    for values in (fitted.compute(s) for s in (plain, flat, even)):
        assert np.isfinite(values).all(), f"not finite on constant rows: {values}"
        np.testing.assert_array_equal(values[:2], values[-2:], err_msg="equal rows have different scores")
    for signals in (plain, flat, even):
        assert_close(GraphScore(fitted).compute(signals), fitted.compute(signals), fitted, "constant rows differ")


def check_non_finite(spec: str) -> None:
    """A row with a NaN or an infinity has no score; its neighbours keep theirs."""
    made = case(rows=12)
    fitted = made.fitted(spec)
    clean = fitted.compute(made.rows)
    for bad in (np.nan, np.inf, -np.inf):
        logits, features = made.rows.logits.copy(), np.array(made.rows.features)
        logits[2, 1] = bad
        features[5, 3] = bad
        scores = fitted.compute(Signals(logits, features))
        assert np.isnan(scores[2]), f"a logit of {bad} was scored {scores[2]}"
        assert np.isnan(scores[5]) == fitted.uses_features, f"a feature of {bad} was scored {scores[5]}"
        others = [i for i in range(12) if i not in (2, 5)]
        np.testing.assert_allclose(scores[others], clean[others], rtol=1e-9)


def check_rank_deficient_head(spec: str) -> None:
    """A centred head, and one with two equal classes, neither explode nor separate graph and definition."""
    made = case()
    weight = made.head.weight - made.head.weight.mean(axis=0)
    twins = made.head.weight.copy()
    twins[1] = twins[0]
    for head in (Head(weight, made.head.bias, "gemm"), Head(twins, made.head.bias, "gemm")):
        fit, rows = _signals(np.array(made.fit.features), head), _signals(np.array(made.rows.features), head)
        fitted = fit_score(spec, None, FitData.of(fit, made.labels, head))
        scores = fitted.compute(rows)
        assert np.isfinite(scores).all(), "a rank-deficient head gives scores that are not finite"
        assert np.abs(scores).max() < 1e9, f"a rank-deficient head gives a score of {np.abs(scores).max():.1e}"
        assert_agree(fitted, rows)


def check_missing_class(spec: str) -> None:
    """Fit data that lacks a class: a sentence why not, or finite scores and a note if labels were asked for."""
    made = case()
    keep = made.labels != 2
    fit = _row(made.fit, np.flatnonzero(keep))
    fitted = _refuses_or_scores(spec, FitData.of(fit, made.labels[keep], made.head), made.rows)
    if fitted is not None and "labels" in fitted.needs:
        assert any("class" in note for note in fitted.notes), "a class without fit rows is not mentioned in the notes"


def check_few_rows(spec: str) -> None:
    """Fewer fit rows than features: a sentence why not, or finite scores."""
    made = case(classes=3, dim=40, fit=12)
    _refuses_or_scores(spec, made.data(), made.rows)


def check_stream_equals_memory(spec: str) -> None:
    """Batches of a stream give the same fit as arrays in memory."""
    made = case()

    def batches() -> list[FitBatch]:
        parts = np.array_split(np.arange(len(made.labels)), 7)
        features = np.array(made.fit.features)
        return [FitBatch(made.fit.logits[p], features[p], made.labels[p]) for p in parts]

    streamed = fit_score(spec, None, FitData.stream(batches, made.head))
    np.testing.assert_allclose(streamed.compute(made.rows), made.fitted(spec).compute(made.rows), rtol=1e-6)


def check_spec_round_trip(spec: str) -> None:
    """The recorded spec is JSON, and fitting from it again gives the same score."""
    made = case()
    fitted = made.fitted(spec)
    read = ScoreSpec.model_validate(json.loads(json.dumps(fitted.spec.model_dump(mode="json"))))
    assert read == fitted.spec
    again = fit_score(parse_spec(str(read)), None, made.data())
    np.testing.assert_allclose(again.compute(made.rows), fitted.compute(made.rows), rtol=1e-9)


CHECKS: tuple[Callable[[str], None], ...] = (
    check_graph_equals_definition,
    check_batch_equals_single,
    check_row_order,
    check_constants_and_duplicates,
    check_non_finite,
    check_rank_deficient_head,
    check_missing_class,
    check_few_rows,
    check_stream_equals_memory,
    check_spec_round_trip,
)


def assert_agree(fitted: FittedScore, rows: Signals) -> None:
    """Graph and definition agree on these rows."""
    expected = fitted.compute(rows)
    assert np.isfinite(expected).all(), "the definition gives a value that is not finite"
    assert_close(GraphScore(fitted).compute(rows), expected, fitted, "graph and definition differ")


def assert_close(got: np.ndarray, expected: np.ndarray, fitted: FittedScore, message: str) -> None:
    """Equal to 1e-6, or of the same ranking where the score says why it cannot be."""
    assert got.dtype == np.float64, f"a score is float64, got {got.dtype}"
    if fitted.score.inexact is None:
        np.testing.assert_allclose(got, expected, rtol=RELATIVE, atol=1e-12, err_msg=message)
        return
    from scipy.stats import kendalltau

    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5, err_msg=message)
    if len(np.unique(expected)) > 1:
        tau = kendalltau(got, expected).statistic
        assert tau >= KENDALL, f"{message}: Kendall tau {tau:.6f}"


def _refuses_or_scores(spec: str, data: FitData, rows: Signals) -> FittedScore | None:
    try:
        fitted = fit_score(spec, None, data)
    except ScoreError as refusal:
        if parse_spec(spec).id in str(refusal):
            return None
        raise AssertionError(f"a refusal names the score: {refusal}") from refusal
    scores = fitted.compute(rows)
    assert np.isfinite(scores).all(), f"fitted, but {np.sum(~np.isfinite(scores))} scores are not finite"
    assert_agree(fitted, rows)
    return fitted


def _row(signals: Signals, index: np.ndarray | list[int]) -> Signals:
    features = None if signals.features is None else signals.features[index]
    return Signals(signals.logits[index], features)
