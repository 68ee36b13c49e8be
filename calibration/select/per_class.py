"""Thresholds for each predicted class, where every class has the data for them."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.binomial import fewest_samples
from calibration.errors import SelectionRefused
from calibration.judge import accepted, class_numbers, predicted_classes
from calibration.policy import ClassThresholds, Policy
from calibration.resample import f1_interval
from calibration.select.base import Parameters, Promise, Selection, Selector, stated_mix
from calibration.splits import Splits

FEWEST_PER_CLASS = 100  # ID samples predicted as the class, in the split that chooses


def select_thresholds(
    selector: Selector, splits: Splits, parameters: Parameters
) -> tuple[Selection, tuple[ClassThresholds, ...] | None]:
    """One pair for all, or one for each class when the parameters ask for it."""
    if parameters.per_class:
        return select_per_class(selector, splits, parameters)
    return selector.select(splits, parameters), None


def select_per_class(
    selector: Selector, splits: Splits, parameters: Parameters
) -> tuple[Selection, tuple[ClassThresholds, ...]]:
    """Run the selector on the rows predicted as each class.

    A certifying selector gets delta/C for each of C classes, so that all certificates hold together, and with every
    class below the risk limit so is their mix. A class that the calibration data never predicts is judged by the
    strictest of all doors.
    """
    parts = {name: predicted_classes(part) for name, part in splits.named().items()}
    classes = np.unique(np.concatenate([*parts.values(), *_labels(splits)]))
    share = parameters.with_delta(parameters.delta / len(classes)) if selector.certifies else parameters
    _check_enough(selector, splits, parts, classes, share)
    found = {int(k): _select(selector, _of_class(splits, parts, int(k)), share, int(k)) for k in classes}
    pairs = tuple(ClassThresholds(label=k, tau_id=s.tau_id, tau_ood=s.tau_ood) for k, s in found.items())
    together = _together(found, parameters)
    if together.promises and together.promises[0].metric == "f1":
        together = replace(together, promises=(_joint_f1(together, pairs, splits, parameters),))
    return together, pairs


def _joint_f1(
    together: Selection, pairs: tuple[ClassThresholds, ...], splits: Splits, parameters: Parameters
) -> Promise:
    """F1 of classes does not add up: what all pairs together may claim is measured on the selection split."""
    table = stated_mix(splits.selection, parameters)
    draft = Policy(tau_id=together.tau_id, tau_ood=together.tau_ood, per_class=pairs)
    return Promise("f1", f1_interval(table, accepted(draft, table), seed=parameters.seed)[0], "at_least")


def _select(selector: Selector, splits: Splits, parameters: Parameters, label: int) -> Selection:
    try:
        return selector.select(splits, parameters)
    except SelectionRefused as refusal:
        raise SelectionRefused(f"class {label}: {refusal}; or leave --per-class out") from None


def _together(found: dict[int, Selection], parameters: Parameters) -> Selection:
    """One selection that stands for all classes: the strictest doors, the weakest promises."""
    first = next(iter(found.values()))
    certificate = first.certificate
    if certificate is not None:
        parts = [s.certificate for s in found.values() if s.certificate is not None]
        certificate = certificate.model_copy(
            update={
                "delta": parameters.delta,
                "bound": max(part.bound or 0.0 for part in parts),
                "accepted": sum(part.accepted or 0 for part in parts),
                "wrong": sum(part.wrong or 0 for part in parts),
                "tests": sum(part.tests or 0 for part in parts),
                "statement": _statement(certificate.statement, len(found), parameters.delta),
            }
        )
    return Selection(
        tau_id=max(s.tau_id for s in found.values()),
        tau_ood=max(s.tau_ood for s in found.values()),
        promises=tuple(_weakest([s.promises[i] for s in found.values()]) for i in range(len(first.promises))),
        certificate=certificate,
        details={"classes": {str(k): s.details for k, s in found.items()}},
        notes=tuple(f"class {k}: {note}" for k, s in found.items() for note in s.notes),
    )


def _weakest(promises: list[Promise]) -> Promise:
    weaker = max if promises[0].direction == "at_most" else min
    return replace(promises[0], limit=weaker(promise.limit for promise in promises))


def _statement(single: str, classes: int, delta: float) -> str:
    risk, _, rest = single.partition(" with probability")
    scope = rest.split(", ", 1)[1]
    return f"{risk} in each of {classes} classes with joint probability ≥ {100 * (1 - delta):.3g} %, {scope}"


def _check_enough(
    selector: Selector, splits: Splits, parts: dict[str, NDArray], classes: NDArray, share: Parameters
) -> None:
    """Refuse with the first class that has too little, how much it has and how much it needs."""
    needs = {"selection": FEWEST_PER_CLASS}
    if selector.certifies:
        needs["certification"] = max(FEWEST_PER_CLASS, fewest_samples(share.risk_limit, share.delta))
    tables = splits.named()
    for name, needed in needs.items():
        of_id = parts[name][tables[name].is_id]
        counts = {int(k): int(np.count_nonzero(of_id == k)) for k in classes}
        worst = min(counts, key=lambda k: counts[k])
        if counts[worst] < needed:
            raise SelectionRefused(
                f"per-class thresholds need {needed} ID samples predicted as each class in the {name} split; "
                f"class {worst} has {counts[worst]}: bring about {-(-needed // max(counts[worst], 1))} times the data, "
                "or leave --per-class out"
            )


def _of_class(splits: Splits, parts: dict[str, NDArray], label: int) -> Splits:
    return Splits(**{name: part.take(parts[name] == label) for name, part in splits.named().items()})


def _labels(splits: Splits) -> list[NDArray[np.int64]]:
    """True classes of ID rows count as classes too, even if the model never predicts one."""
    parts = splits.named().values()
    return [class_numbers(part.label[part.is_id], "label") for part in parts if part.label is not None]
