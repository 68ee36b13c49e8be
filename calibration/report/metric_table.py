"""The full table of metrics for readers: families with their conventions in words, one column a group."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibration.metrics.sections import COVERAGES, RISKS

_ESTIMATORS = ("curve", "plugin", "plugin_log", "sele")
_CONVENTIONS = ("trapezoid", "envelope", "published")
_SCORES = ("s_id", "s_ood")
_RULES = {"double": "both doors", "s_id": "s_id alone", "s_ood": "s_ood alone", "id_only": "s_id on ID alone"}

Lines = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Family:
    """Metrics that answer the same question: dotted paths of the evaluation with their labels."""

    title: str
    words: str
    lines: Lines


def _operating(rule: str) -> Lines:
    at = [(f"coverage_at_risk_{risk}", f"coverage at {risk} % risk ↑") for risk in RISKS]
    at += [(f"risk_at_coverage_{coverage}", f"risk at {coverage} % coverage ↓") for coverage in COVERAGES]
    return tuple((f"operating.{rule}.{key}", f"{_RULES[rule]}: {label}") for key, label in at)


FAMILIES = (
    Family(
        "Both doors",
        "Coverage is the accepted share of ID, risk the share of errors and OOD among all accepted. DS-AURC by"
        " trapezoid joins the attainable coverages; by envelope it takes the best risk at the same or a larger"
        " coverage; published repeats the grid and bins of the original tables.",
        (
            ("ds_f1.value", "DS-F1 ↑"),
            ("ds_f1.precision", "precision at DS-F1 ↑"),
            ("ds_f1.recall", "recall at DS-F1 ↑"),
            ("ds_f1.tau_id", "τ_id of DS-F1"),
            ("ds_f1.tau_ood", "τ_ood of DS-F1"),
            *((f"ds_aurc.{key}", f"DS-AURC, {key} ↓") for key in _CONVENTIONS),
            *_operating("double"),
        ),
    ),
    Family(
        "One door, the other open",
        "The same definitions with one threshold at −∞, so these values can be held against those of both doors.",
        (
            *((f"f1.{score}.value", f"F1 of {score} ↑") for score in _SCORES),
            *((f"f1.{score}.tau", f"τ of the best F1 of {score}") for score in _SCORES),
            *(
                (f"one_gate_aurc.{score}.{key}", f"AURC of {score}, {key} ↓")
                for score in _SCORES
                for key in _CONVENTIONS
            ),
        ),
    ),
    Family(
        "One score on all samples",
        "The usual risk-coverage family: coverage is here the accepted share of all samples, ID and OOD. Estimators of"
        " AURC: the trapezoid of the curve, and the plug-in, its logarithmic form and SELE of Zhou et al. 2025. e-AURC"
        " is the excess over a perfect ranking; AUGRC counts accepted errors over all samples.",
        (
            *((f"aurc.{score}.{key}", f"AURC of {score}, {key} ↓") for score in _SCORES for key in _ESTIMATORS),
            *((f"eaurc.{score}.{key}", f"e-AURC of {score}, {key} ↓") for score in _SCORES for key in _ESTIMATORS),
            *((f"augrc.{score}", f"AUGRC of {score} ↓") for score in _SCORES),
            *_operating("s_id"),
            *_operating("s_ood"),
        ),
    ),
    Family(
        "Misclassification, in-distribution alone",
        "How well s_id tells right from wrong labels. AP is average precision without interpolation.",
        (
            ("accuracy", "accuracy ↑"),
            ("failure.auroc", "AUROC of s_id ↑"),
            ("failure.ap", "AP, correct as positives ↑"),
            ("failure.ap_err", "AP, errors as positives ↑"),
            *((f"aurc.id_only.{key}", f"AURC of s_id, {key} ↓") for key in _ESTIMATORS),
            *((f"eaurc.id_only.{key}", f"e-AURC of s_id, {key} ↓") for key in _ESTIMATORS),
            *_operating("id_only"),
        ),
    ),
    Family(
        "Out-of-distribution detection",
        "How well s_ood tells ID from OOD; FPR95 is the share of OOD accepted where 95 % of ID is. New class: the same"
        " without misclassified samples (Jaeger et al. 2023).",
        (
            ("ood.auroc", "AUROC of s_ood ↑"),
            ("ood.aupr_in", "AUPR, ID as positives ↑"),
            ("ood.aupr_out", "AUPR, OOD as positives ↑"),
            ("ood.fpr95", "FPR95 of s_ood ↓"),
            *(
                (f"new_class.{score}.{key}", f"new class, {score}: {label}")
                for score in _SCORES
                for key, label in (("auroc", "AUROC ↑"), ("fpr95", "FPR95 ↓"), ("aurc", "AURC ↓"), ("augrc", "AUGRC ↓"))
            ),
        ),
    ),
    Family(
        "Probabilities, in-distribution alone",
        "Proper scores and the expected calibration error over 15 equal bins of the largest probability.",
        (("probabilities.nll", "NLL ↓"), ("probabilities.brier", "Brier ↓"), ("probabilities.ece", "ECE ↓")),
    ),
)


@dataclass(frozen=True)
class Cell:
    """A value and its interval, as shown."""

    value: str
    interval: str = ""


def columns(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The whole table, its groups and the averages over them, by heading."""
    groups = {f"group {name}": part for name, part in metrics["groups"].items()}
    averages = {f"mean of {'groups' if name == 'all' else name}": part for name, part in metrics["averages"].items()}
    return {"all": metrics, **groups, **averages}


def filled(family: Family, parts: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, list[Cell]]]:
    """Label, dotted path and cells of the family's metrics; those that no column defines are left out."""
    rows = []
    for path, label in family.lines:
        cells = [_cell(part, path) for part in parts.values()]
        if any(cell.value != UNDEFINED for cell in cells):
            rows.append((label, path, cells))
    return rows


UNDEFINED = "–"


def _cell(part: Mapping[str, Any], path: str) -> Cell:
    value, interval = _at(part, path), _at(part.get("intervals", {}), path)
    if value is None:
        return Cell(UNDEFINED)
    if path.rsplit(".", 1)[-1].startswith("tau"):
        return Cell(f"{value:.6g}")
    return Cell(f"{value:.4f}", f"{interval['low']:.4f} – {interval['high']:.4f}" if interval else "")


def _at(part: Any, path: str) -> Any:
    for step in path.split("."):
        if not isinstance(part, Mapping) or step not in part:
            return None
        part = part[step]
    return part
