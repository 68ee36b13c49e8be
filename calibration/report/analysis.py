"""From score tables and a policy to the report's document."""

import importlib.metadata
import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from calibration.certify import prevalence_budget
from calibration.errors import TableError
from calibration.evidence import PrevalenceBudget, Transfer
from calibration.metrics import Undefined, ds_f1
from calibration.policy import Policy
from calibration.report.comparison import compare_tables
from calibration.report.curves import Curves, operating_points
from calibration.report.document import PolicySummary, ReportDocument, TableSummary
from calibration.report.measures import measure
from calibration.report.outcomes import UNNAMED, Judged, by_kind, decisions, per_class
from calibration.report.tables import NamedTable
from calibration.report.verdict import verdict
from calibration.splits import has_weights, plain_sample, repeats_samples, split
from calibration.table import ScoreTable
from calibration.thresholds import OPEN
from calibration.transfer import transfer

NO_CLAIM = (0.05, 0.05)
"""Risk and δ of the prevalence budget where the policy names none."""


@dataclass(frozen=True)
class Request:
    """What a report is made of. The first table is the subject; the others are compared with it."""

    tables: Sequence[NamedTable]
    policy: Policy | None = None
    policy_source: str = ""
    title: str = "Selective classification report"
    bootstrap: int = 200
    seed: int = 0
    command: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    """More to say under provenance."""


@dataclass(frozen=True)
class Analysis:
    """The document, and what the figures need besides it."""

    document: ReportDocument
    policy: Policy
    judged: Judged
    curves: Curves
    classes: Sequence[str] | None


def analyse(request: Request, advance: Callable[[int], None] = lambda _: None) -> Analysis:
    """Judge the first table with the policy (else with its own DS-F1 optimum) and compare the others with it."""
    if not request.tables:
        raise TableError("A report needs at least one score table.")
    subject = request.tables[0]
    table = subject.table
    if not table.weights[table.is_id].sum() > 0.0:
        raise TableError(f"{subject.name} has no in-distribution row with weight; a report needs some.")
    policy = request.policy or _optimum(subject)
    judged = Judged.by(policy, table)
    metrics = measure(table, request.bootstrap, request.seed, advance)
    curves = Curves.of(table)
    budget = _budget(policy, judged, request.seed)
    decided = decisions(judged)
    document = ReportDocument(
        title=request.title,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        verdict=verdict(policy, request.policy is not None, decided["all"], budget, _calibrated_on(request)),
        notes=_notes(request, table),
        policy=_policy_summary(request, policy),
        table=_table_summary(subject),
        decisions=decided,
        by_kind=by_kind(judged),
        per_class=per_class(judged, subject.classes),
        operating=operating_points(curves, metrics),
        metrics=metrics,
        prevalence=budget,
        transfer=list(_transfer(table, request.seed)),
        comparison=compare_tables(request.tables, request.seed) if len(request.tables) > 1 else None,
        provenance=_provenance(request, policy),
    )
    return Analysis(document, policy, judged, curves, subject.classes)


def _optimum(subject: NamedTable) -> Policy:
    best = ds_f1(subject.table)
    if math.isinf(best.tau_id):
        raise TableError(
            f"No thresholds accept a correct row of {subject.name}, so there is no best pair; name one with a policy."
        )
    return Policy(method="dsf1 on this table", tau_id=best.tau_id, tau_ood=best.tau_ood)


def _budget(policy: Policy, judged: Judged, seed: int) -> PrevalenceBudget | None:
    """R(π) of these decisions on independent rows; none where rows have weights, since the bounds are binomial."""
    if has_weights(judged.table):
        return None
    if repeats_samples(judged.table):
        judged = Judged.by(policy, plain_sample(judged.table, seed))
    risk, delta = NO_CLAIM
    if policy.certificate is not None:
        stamped = policy.certificate.budget
        risk = stamped.risk if stamped else policy.certificate.risk or risk
        delta = stamped.delta if stamped else policy.certificate.delta or delta
    return prevalence_budget(judged.table, judged.accept, risk, delta)


def _transfer(table: ScoreTable, seed: int) -> tuple[Transfer, ...]:
    """Thresholds chosen on one half with one group, tested on the other half with another (Li et al., Table 2)."""
    if table.group is None or len(np.unique(table.group[~table.is_id])) < 2:
        return ()
    halves = split(_with_short_ids(table), (0.5, 0.5), seed)
    try:
        return transfer(halves.selection, halves.evaluation)
    except Undefined:
        return ()


def _with_short_ids(table: ScoreTable) -> ScoreTable:
    """Ids as numbers: they split alike, and megabytes of paths need not be copied."""
    if table.id is None:
        return table
    numbers: dict[str, int] = {}
    return replace(table, id=np.array([str(numbers.setdefault(name, len(numbers))) for name in table.id.tolist()]))


def _policy_summary(request: Request, policy: Policy) -> PolicySummary:
    certificate = policy.certificate
    return PolicySummary(
        source=request.policy_source or "the DS-F1 optimum of this table",
        number=policy.number,
        method=policy.method,
        status=policy.status if request.policy else None,
        tau_id=None if policy.tau_id == OPEN else policy.tau_id,
        tau_ood=None if policy.tau_ood == OPEN else policy.tau_ood,
        per_class=policy.per_class is not None,
        bundle=policy.bundle,
        scores=policy.scores,
        certificate=certificate.statement if certificate else None,
        scope=certificate.scope if certificate else None,
        calibrated_on=policy.data.fingerprint if policy.data else None,
    )


def _table_summary(named: NamedTable) -> TableSummary:
    table = named.table
    groups: dict[str, int] = {}
    if table.group is not None:
        names, sizes = np.unique(table.group, return_counts=True)
        groups = {str(name) or UNNAMED: int(size) for name, size in zip(names, sizes, strict=True)}
    return TableSummary(
        name=named.name,
        rows=len(table),
        n_id=table.n_id,
        n_ood=table.n_ood,
        not_finite=table.n_not_finite,
        groups=groups,
        weighted=has_weights(table),
        fingerprint=named.fingerprint,
    )


def _calibrated_on(request: Request) -> bool:
    """Whether the subject is the very table that the policy was calibrated on."""
    data = None if request.policy is None else request.policy.data
    return data is not None and data.fingerprint == request.tables[0].fingerprint


def _notes(request: Request, table: ScoreTable) -> list[str]:
    """What a reader of the verdict has to know."""
    notes = []
    policy = request.policy
    if _calibrated_on(request):
        notes.append(
            "This is the table the policy was calibrated on: part of it chose the thresholds, so its figures are "
            "optimistic; the policy's own evidence comes from the held-out part."
        )
    if policy is not None and policy.status == "rejected":
        notes.append(f"This policy was rejected when it was validated: {'; '.join(policy.status_reasons)}.")
    if table.n_not_finite:
        notes.append(f"{table.n_not_finite:,} samples have a score that is not finite and are never accepted.")
    if repeats_samples(table):
        notes.append("Rows share ids: R(π) uses one row of each id, every other interval takes rows for independent.")
    if has_weights(table):
        notes.append("Rows have weights: counts are sums of weights, and neither exact intervals nor R(π) are given.")
    return notes


def _provenance(request: Request, policy: Policy) -> dict[str, Any]:
    versions = {name: importlib.metadata.version(name) for name in ("airlock-gate", "numpy", "scipy", "plotly")}
    return {
        "tables": [_table_summary(named).model_dump() for named in request.tables],
        "policy": {"source": request.policy_source or None, "number": policy.number, "bundle": policy.bundle},
        "software": {**versions, "python": platform.python_version()},
        "command": request.command,
        "bootstrap": request.bootstrap,
        "seed": request.seed,
        **request.extra,
    }
