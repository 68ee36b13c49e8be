"""Exact joint metrics of a double gate and the risk-coverage family, on score tables.

>>> from calibration.metrics import ds_aurc, ds_f1, evaluate, risk_coverage
"""

from calibration.metrics.aurc import ESTIMATORS, Estimator, augrc, aurc, eaurc, perfect_aurc
from calibration.metrics.bootstrap import Comparison, Interval, bootstrap, compare, interval, resamples
from calibration.metrics.counts import Counts, counts_at, counts_of
from calibration.metrics.curve import RiskCoverage, risk_coverage
from calibration.metrics.detection import Failure, Ood, failure, ood, ood_new_class, prediction_rejection_ratio
from calibration.metrics.double_aurc import (
    CONVENTIONS,
    Convention,
    double_risk_coverage,
    ds_aurc,
    one_gate_aurc,
    one_gate_risk_coverage,
)
from calibration.metrics.double_f1 import F1, DsF1, ds_f1, f1
from calibration.metrics.evaluation import evaluate
from calibration.metrics.grid import F1Surface, f1_surface, grid_sums
from calibration.metrics.groups import group_tables
from calibration.metrics.ordering import Score
from calibration.metrics.probabilities import Reliability, accuracy, brier, ece, nll, reliability
from calibration.metrics.rank_weights import rank_weight_bias, rank_weight_mse, rank_weights
from calibration.metrics.undefined import Undefined

__all__ = [
    "CONVENTIONS",
    "ESTIMATORS",
    "F1",
    "Comparison",
    "Convention",
    "Counts",
    "DsF1",
    "Estimator",
    "F1Surface",
    "Failure",
    "Interval",
    "Ood",
    "Reliability",
    "RiskCoverage",
    "Score",
    "Undefined",
    "accuracy",
    "augrc",
    "aurc",
    "bootstrap",
    "brier",
    "compare",
    "counts_at",
    "counts_of",
    "double_risk_coverage",
    "ds_aurc",
    "ds_f1",
    "eaurc",
    "ece",
    "evaluate",
    "f1",
    "f1_surface",
    "failure",
    "grid_sums",
    "group_tables",
    "interval",
    "nll",
    "one_gate_aurc",
    "one_gate_risk_coverage",
    "ood",
    "ood_new_class",
    "perfect_aurc",
    "prediction_rejection_ratio",
    "rank_weight_bias",
    "rank_weight_mse",
    "rank_weights",
    "reliability",
    "resamples",
    "risk_coverage",
]
