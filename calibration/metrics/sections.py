"""The parts of an evaluation: where each stands in the document, its keys, and how it is computed."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from calibration.metrics.aurc import (
    ESTIMATORS,
    area_of_generalised_risk,
    area_of_selective_risk,
    estimates,
    perfect_aurc,
)
from calibration.metrics.curve import RiskCoverage, envelope, trapezoid
from calibration.metrics.detection import failure, ood, ood_new_class
from calibration.metrics.double_aurc import double_risk_coverage, one_gate_risk_coverage
from calibration.metrics.double_f1 import ds_f1, f1, id_weight
from calibration.metrics.ordering import SCORES, Profile, Score, profile
from calibration.metrics.probabilities import accuracy, brier, ece, nll
from calibration.metrics.published import published_double, published_single
from calibration.metrics.undefined import Undefined
from calibration.table import ScoreTable

COVERAGES = (50, 80, 90, 95)
RISKS = (1, 5, 10)
"""Operating points that are reported, in percent."""


class Subject:
    """A table under evaluation; what several sections need is computed once."""

    def __init__(self, table: ScoreTable, grid: int | None = None) -> None:
        self.table = table
        self._grid = grid
        self._estimates: dict[str, Mapping[Any, float]] = {}

    @cached_property
    def double_curve(self) -> RiskCoverage:
        """The double-scoring risk-coverage curve."""
        return double_risk_coverage(self.table, grid=self._grid)

    @cached_property
    def sweeps(self) -> dict[str, Profile]:
        """Outcomes by threshold of each score on all rows, and of s_id on ID rows."""
        sweeps = {score: profile(self.table, score, self.table.correct) for score in SCORES}
        return sweeps | {"id_only": profile(self.table, "s_id", self.table.correct, self.table.is_id)}

    def estimates(self, name: str) -> Mapping[Any, float]:
        """Every AURC estimator of one of the sweeps."""
        if name not in self._estimates:
            self._estimates[name] = estimates(self.outcome(name))
        return self._estimates[name]

    def outcome(self, name: str) -> Profile:
        """One of the sweeps, which must hold rows."""
        sweep = self.sweeps[name]
        if sweep.total <= 0.0:
            raise Undefined(f"the table has no {'ID ' if name == 'id_only' else ''}rows with weight")
        return sweep


@dataclass(frozen=True)
class Section:
    """Some keys under one path of the document; all of them are null where `values` finds them undefined."""

    path: tuple[str, ...]
    keys: tuple[str, ...]
    values: Callable[[Subject], Mapping[Any, float]]
    resampled: bool = True
    """Whether intervals are made; the published grids are for comparing with tables that have none."""


def _ds_f1(subject: Subject) -> Mapping[Any, float]:
    return asdict(ds_f1(subject.table))


def _f1(score: Score, subject: Subject) -> Mapping[Any, float]:
    return asdict(f1(subject.table, score))


def _areas(curve: RiskCoverage) -> Mapping[Any, float]:
    return {"trapezoid": trapezoid(curve), "envelope": envelope(curve)}


def _ds_aurc(subject: Subject) -> Mapping[Any, float]:
    return _areas(subject.double_curve)


def _ds_aurc_published(subject: Subject) -> Mapping[Any, float]:
    return {"published": published_double(subject.table, id_weight(subject.table))}


def _one_gate(score: Score, subject: Subject) -> Mapping[Any, float]:
    return _areas(one_gate_risk_coverage(subject.table, score))


def _one_gate_published(score: Score, subject: Subject) -> Mapping[Any, float]:
    return {"published": published_single(subject.table, score, id_weight(subject.table))}


def _aurc(name: str, subject: Subject) -> Mapping[Any, float]:
    return subject.estimates(name)


def _eaurc(name: str, subject: Subject) -> Mapping[Any, float]:
    sweep = subject.outcome(name)
    least = perfect_aurc(sweep.total_bad / sweep.total)
    return {estimator: value - least for estimator, value in subject.estimates(name).items()}


def _augrc(subject: Subject) -> Mapping[Any, float]:
    return {score: area_of_generalised_risk(subject.outcome(score)) for score in SCORES}


def _new_class(score: Score, subject: Subject) -> Mapping[Any, float]:
    """Misclassified ID rows removed, so that a score is judged on new classes alone (Jaeger et al. 2023)."""
    table = subject.table
    sweep = profile(table, score, table.correct, table.correct | ~table.is_id)
    detection = ood_new_class(table, score)
    areas = {"aurc": area_of_selective_risk(sweep), "augrc": area_of_generalised_risk(sweep)}
    return areas | {"auroc": detection.auroc, "fpr95": detection.fpr95}


def _operating(name: str, subject: Subject) -> Mapping[Any, float]:
    if name == "double":
        curve = subject.double_curve
    else:
        sweep = subject.outcome(name)
        curve = RiskCoverage(sweep.accepted / sweep.total, sweep.bad / sweep.accepted)
    found = {f"coverage_at_risk_{risk}": curve.coverage_at(risk / 100) for risk in RISKS}
    for coverage in COVERAGES:
        try:
            found[f"risk_at_coverage_{coverage}"] = curve.risk_at(coverage / 100)
        except Undefined:
            found[f"risk_at_coverage_{coverage}"] = np.nan
    return found


_OPERATING_KEYS = (
    *(f"risk_at_coverage_{coverage}" for coverage in COVERAGES),
    *(f"coverage_at_risk_{risk}" for risk in RISKS),
)
_RANKED = (*SCORES, "id_only")

SECTIONS = (
    Section((), ("accuracy",), lambda subject: {"accuracy": accuracy(subject.table)}),
    Section(("ds_f1",), ("value", "tau_id", "tau_ood", "precision", "recall"), _ds_f1),
    *(Section(("f1", score), ("value", "tau"), partial(_f1, score)) for score in SCORES),
    Section(("ds_aurc",), ("trapezoid", "envelope"), _ds_aurc),
    Section(("ds_aurc",), ("published",), _ds_aurc_published, resampled=False),
    *(Section(("aurc", name), ESTIMATORS, partial(_aurc, name)) for name in _RANKED),
    *(Section(("eaurc", name), ESTIMATORS, partial(_eaurc, name)) for name in _RANKED),
    Section(("augrc",), SCORES, _augrc),
    Section(("failure",), ("auroc", "ap", "ap_err"), lambda subject: asdict(failure(subject.table))),
    Section(("ood",), ("auroc", "aupr_in", "aupr_out", "fpr95"), lambda subject: asdict(ood(subject.table))),
    *(Section(("one_gate_aurc", score), ("trapezoid", "envelope"), partial(_one_gate, score)) for score in SCORES),
    *(
        Section(("one_gate_aurc", score), ("published",), partial(_one_gate_published, score), resampled=False)
        for score in SCORES
    ),
    *(
        Section(("new_class", score), ("auroc", "fpr95", "aurc", "augrc"), partial(_new_class, score))
        for score in SCORES
    ),
    Section(("probabilities",), ("nll",), lambda subject: {"nll": nll(subject.table)}),
    Section(("probabilities",), ("brier",), lambda subject: {"brier": brier(subject.table)}),
    Section(("probabilities",), ("ece",), lambda subject: {"ece": ece(subject.table)}),
    *(Section(("operating", name), _OPERATING_KEYS, partial(_operating, name)) for name in ("double", *_RANKED)),
)
