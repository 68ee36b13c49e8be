"""Every possible score on the same data, judged as a door of the gate, and the pair to take."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from calibration.metrics import Undefined, ds_aurc, ds_f1, f1, one_gate_aurc, ood
from calibration.metrics import compare as paired_bootstrap
from calibration.table import ScoreTable
from models.errors import ScoreError
from models.scores import FitData, FittedScore, fit_score, get_score
from models.scores.alone import GraphScore
from models.signals import Signals

REFERENCE = "msp"
"""The s_id that every s_ood is paired with, as in Table 1 of Li et al., From Misclassifications to Outliers."""
RESAMPLES = 100
CLOSEST = 6
"""Cheaper scores that are tested against the best one."""
COST_ROWS, COST_RUNS, COST_SECONDS = 32, 10, 0.02


@dataclass(frozen=True)
class Evaluation:
    """Labelled in-distribution signals, and outliers by group."""

    id: Signals
    labels: np.ndarray
    ood: Mapping[str, Signals]

    @property
    def correct(self) -> np.ndarray:
        return np.asarray(np.argmax(self.id.logits, axis=1) == self.labels)


@dataclass(frozen=True)
class Line:
    """A score on one OOD group: alone, and as s_ood beside msp."""

    score: str
    spec: str
    group: str
    f1: float
    aurc: float
    ds_f1: float
    ds_aurc: float
    auroc: float
    fpr95: float
    cost_us: float


@dataclass(frozen=True)
class Recommendation:
    """A pair and why."""

    s_id: str
    s_ood: str
    reason: str


@dataclass(frozen=True)
class Report:
    """The whole comparison."""

    accuracy: float
    groups: dict[str, int]
    n_id: int
    lines: tuple[Line, ...]
    refused: dict[str, str]
    recommendation: Recommendation

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Candidate:
    """A fitted score with its values on every evaluation row, and what it costs."""

    fitted: FittedScore
    id: np.ndarray
    ood: dict[str, np.ndarray]
    cost_us: float

    @property
    def name(self) -> str:
        return self.fitted.score.id


def compare_scores(
    ids: list[str], fit: FitData, data: Evaluation, advance: Callable[[int], None] = lambda _: None
) -> Report:
    """Fit each score, judge it on every OOD group, recommend a pair; `advance(1)` is called after each score."""
    candidates: list[Candidate] = []
    refused: dict[str, str] = {}
    for id in ids:
        try:
            candidates.append(_candidate(fit_score(id, None, fit), data))
        except ScoreError as refusal:
            refused[id] = str(refusal)
        advance(1)
    if not candidates:
        raise ScoreError(f"None of the scores could be fitted: {'; '.join(refused.values())}")
    reference = next((c for c in candidates if c.name == REFERENCE), None)
    if reference is None:
        reference = _candidate(fit_score(REFERENCE, None, fit), data)
    lines = [_line(c, reference, data, group) for c in candidates for group in data.ood]
    return Report(
        accuracy=float(np.mean(data.correct)),
        groups={name: len(signals) for name, signals in data.ood.items()},
        n_id=len(data.id),
        lines=tuple(lines),
        refused=refused,
        recommendation=_recommend(candidates, reference, lines, data),
    )


def _candidate(fitted: FittedScore, data: Evaluation) -> Candidate:
    values = {name: fitted.compute(signals) for name, signals in data.ood.items()}
    return Candidate(fitted, fitted.compute(data.id), values, cost_us(fitted, data.id))


def cost_us(fitted: FittedScore, signals: Signals) -> float:
    """Microseconds a sample in the graph at a batch of 32 on one thread: the fastest of several runs."""
    graph = GraphScore(fitted)
    columns = graph.columns(signals)[:COST_ROWS]
    graph.run(columns)
    end = time.perf_counter() + COST_SECONDS
    times: list[float] = []
    while len(times) < COST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        graph.run(columns)
        times.append(time.perf_counter() - start)
    return min(times) / len(columns) * 1e6


def _line(candidate: Candidate, reference: Candidate, data: Evaluation, group: str) -> Line:
    table = _table(reference, candidate, data, [group])
    detection = ood(table)
    return Line(
        score=candidate.name,
        spec=str(candidate.fitted.spec),
        group=group,
        f1=f1(table, "s_ood").value,
        aurc=one_gate_aurc(table, "s_ood"),
        ds_f1=ds_f1(table).value,
        ds_aurc=ds_aurc(table),
        auroc=detection.auroc,
        fpr95=detection.fpr95,
        cost_us=candidate.cost_us,
    )


def _table(s_id: Candidate, s_ood: Candidate, data: Evaluation, groups: list[str]) -> ScoreTable:
    """The evaluation rows scored by a pair, ID first."""
    sizes = [len(data.ood[name]) for name in groups]
    n = len(data.id)
    return ScoreTable.from_columns(
        s_id=np.concatenate([s_id.id, *(s_id.ood[name] for name in groups)]),
        s_ood=np.concatenate([s_ood.id, *(s_ood.ood[name] for name in groups)]),
        is_id=np.arange(n + sum(sizes)) < n,
        correct=np.concatenate([data.correct, np.zeros(sum(sizes), dtype=bool)]),
        group=np.concatenate([np.full(n, ""), *(np.full(k, name) for k, name in zip(sizes, groups, strict=True))]),
    )


def _mean_ds_f1(table: ScoreTable) -> float:
    """Mean DS-F1 over the OOD groups, each with all ID rows."""
    assert table.group is not None, "made by _table"
    names = np.unique(table.group[~table.is_id])
    return float(np.mean([ds_f1(table.take(table.is_id | (table.group == name))).value for name in names]))


def _recommend(
    candidates: list[Candidate], reference: Candidate, lines: list[Line], data: Evaluation
) -> Recommendation:
    """s_ood: the cheapest that is not clearly worse than the best. s_id: msp, unless another is clearly better."""
    groups = list(data.ood)
    means = {c.name: float(np.mean([x.ds_f1 for x in lines if x.score == c.name])) for c in candidates}
    ranked = sorted(candidates, key=lambda c: -means[c.name])
    best = ranked[0]
    cheaper = sorted((c for c in ranked[1 : CLOSEST + 1] if c.cost_us < best.cost_us), key=lambda c: c.cost_us)
    top = _table(reference, best, data, groups)
    s_ood = next((c for c in cheaper if not _better(top, _table(reference, c, data, groups))), best)
    s_id = _better_s_id(candidates, reference, s_ood, data, groups)
    return Recommendation(s_id.name, s_ood.name, _reason(s_id, s_ood, best, reference, means, len(candidates)))


def _better_s_id(
    candidates: list[Candidate], reference: Candidate, s_ood: Candidate, data: Evaluation, groups: list[str]
) -> Candidate:
    """The s_id with the best mean DS-F1 beside the chosen s_ood, if it is clearly above msp."""
    pool = [c for c in candidates if get_score(c.name).role != "s_ood" and c is not reference]
    if not pool:
        return reference
    best = max(pool, key=lambda c: _mean_ds_f1(_table(c, s_ood, data, groups)))
    better = _better(_table(best, s_ood, data, groups), _table(reference, s_ood, data, groups))
    return best if better else reference


def _better(first: ScoreTable, second: ScoreTable) -> bool:
    """Whether the first pair's mean DS-F1 is above the second's beyond a paired 95 % bootstrap interval."""
    try:
        return paired_bootstrap(first, second, _mean_ds_f1, RESAMPLES).difference.low > 0
    except Undefined:
        return False


def _reason(
    s_id: Candidate, s_ood: Candidate, best: Candidate, reference: Candidate, means: dict[str, float], count: int
) -> str:
    place = f"{s_ood.name} has the best mean DS-F1 over the groups, {means[s_ood.name]:.4f}, of {count} scores"
    if s_ood is not best:
        place = (
            f"{s_ood.name} reaches a mean DS-F1 of {means[s_ood.name]:.4f} at {s_ood.cost_us:.1f} µs a sample; "
            f"the best, {best.name}, reaches {means[best.name]:.4f} at {best.cost_us:.1f} µs, which is not clearly "
            "more (paired bootstrap, 95 %)"
        )
    if s_id is reference:
        return f"{place}; beside it no s_id is clearly better than {reference.name}"
    return f"{place}; beside it {s_id.name} is clearly better than {reference.name} as s_id"
