"""A score table becomes a policy: split, select, certify, validate, and say what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from calibration.assess import assess, ood_share
from calibration.certify import prevalence_budget
from calibration.errors import SelectionRefused
from calibration.evidence import Certificate, Claim, DataRecord, Evidence, SplitRecord
from calibration.judge import accepted
from calibration.policy import Policy
from calibration.select import get_selector
from calibration.select.base import Parameters, Promise, Selection, Selector, check_enough_id
from calibration.select.per_class import select_thresholds
from calibration.splits import STRATA, Splits, has_weights, parse_fractions, plain_sample, split
from calibration.table import ScoreTable

STAGES = 4
QUANTILE_LEVELS = (0.0, 0.01, 0.02, *(k / 20 for k in range(1, 20)), 0.98, 0.99, 1.0)


@dataclass(frozen=True)
class Calibration:
    """A policy and the splits it came from; the evaluation split serves to compare it with another policy."""

    policy: Policy
    splits: Splits


def calibrate(
    table: ScoreTable,
    method: str,
    parameters: Parameters | None = None,
    *,
    scores: dict[str, str] | None = None,
    bundle: str | None = None,
    sources: Sequence[str] = (),
    note: str | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Calibration:
    """Choose thresholds on one part of the table, certify them on a second if the method does, judge them on the last.

    A policy that misses a claim of its own comes back with the status `rejected` and the reasons; data that cannot
    support what was asked raise `SelectionRefused`. `advance(1)` is called after each of `STAGES` stages.
    """
    parameters = parameters or Parameters()
    selector = get_selector(method)
    _check_table(table, parameters)
    fractions = parse_fractions(parameters.split or selector.default_split, 3 if selector.certifies else 2)
    splits = split(table, fractions, parameters.seed)
    check_enough_id(splits, fractions)
    advance(1)
    selection, per_class = select_thresholds(selector, splits, parameters)
    advance(1)
    draft = Policy(
        method=method,
        tau_id=selection.tau_id,
        tau_ood=selection.tau_ood,
        per_class=per_class,
        scores=scores or {},
        bundle=bundle,
        parameters=_recorded(parameters, fractions, selection),
        data=_data_record(table, splits, parameters, sources),
        note=note,
    )
    found = assess(draft, selector, splits, parameters, _promises(selector, selection, parameters))
    evidence = found.model_copy(update={"notes": selection.notes})
    advance(1)
    certificate = _certificate(draft, selection, splits, parameters)
    reasons = _shortcomings(evidence)
    advance(1)
    status = {"status": "rejected" if reasons else "validated", "status_reasons": reasons}
    policy = draft.model_copy(update={"evidence": evidence, "certificate": certificate, **status})
    return Calibration(policy, splits)


def _check_table(table: ScoreTable, parameters: Parameters) -> None:
    if table.n_id == 0:
        raise SelectionRefused("the table has no ID rows: thresholds need labelled ID samples")
    if not table.correct.any():
        raise SelectionRefused("no ID row is classified correctly: there is nothing worth accepting")
    if not (table.correct & table.finite).any():
        raise SelectionRefused("no correct ID row has two finite scores: no thresholds could accept one")
    if parameters.prevalence and table.n_ood == 0:
        raise SelectionRefused(
            f"a prevalence of {parameters.prevalence:g} cannot be stated without OOD data: add --ood, or leave it out"
        )


def _promises(selector: Selector, selection: Selection, parameters: Parameters) -> tuple[Promise, ...]:
    """The selector's own claims, and what the user asked for on top."""
    promises = list(selection.promises)
    named = {promise.metric for promise in promises}
    if parameters.risk is not None and "selective_risk" not in named:
        promises.append(Promise("selective_risk", parameters.risk, "at_most"))
    if parameters.min_coverage is not None and selector.name not in {"coverage", "tpr"}:
        promises.append(Promise("id_coverage", parameters.min_coverage, "at_least"))
    return tuple(promises)


def _certificate(policy: Policy, selection: Selection, splits: Splits, parameters: Parameters) -> Certificate:
    rows = plain_sample(splits.evaluation, parameters.seed)
    budget = prevalence_budget(rows, accepted(policy, rows), parameters.risk_limit, parameters.delta)
    base = selection.certificate or Certificate(
        kind="none",
        scope="id_only" if budget.id_only else "held-out evidence only",
        statement="no certificate: the rates were measured on held-out data, nothing was tested",
    )
    return base.model_copy(update={"budget": budget})


def _shortcomings(evidence: Evidence) -> tuple[str, ...]:
    """Why the policy is rejected; empty when it stands."""
    if evidence.outcome.accepted == 0:
        return ("it accepts nothing of the held-out split",)
    return tuple(_missed(claim) for claim in evidence.claims if not claim.met)


def _missed(claim: Claim) -> str:
    found, form = claim.held_out, ".3f" if claim.metric == "f1" else ".2%"
    if found.value is None or found.low is None or found.high is None:
        return f"claimed {claim.what}, held out too little is accepted to tell"
    return f"claimed {claim.what}, held out {found.value:{form}} ({found.low:{form}} to {found.high:{form}})"


def _recorded(parameters: Parameters, fractions: tuple[float, ...], selection: Selection) -> dict[str, object]:
    given = {name: value for name, value in asdict(parameters).items() if value is not None}
    return given | {"split": "/".join(f"{100 * share:.3g}" for share in fractions), "selection": selection.details}


def _data_record(table: ScoreTable, splits: Splits, parameters: Parameters, sources: Sequence[str]) -> DataRecord:
    groups = {} if table.group is None else dict(zip(*np.unique(table.group, return_counts=True), strict=True))
    finite = table.finite
    return DataRecord(
        fingerprint=table.fingerprint(),
        sources=tuple(sources),
        n=len(table),
        n_id=table.n_id,
        n_ood=table.n_ood,
        accuracy=float(table.correct.sum() / table.n_id),
        not_finite=table.n_not_finite,
        groups={str(name): int(count) for name, count in groups.items()},
        prevalence=ood_share(table),
        weighted=has_weights(table),
        seed=parameters.seed,
        stratified_by=STRATA,
        splits={
            name: SplitRecord(n=len(part), n_id=part.n_id, n_ood=part.n_ood, fingerprint=part.fingerprint())
            for name, part in splits.named().items()
        },
        quantile_levels=QUANTILE_LEVELS,
        quantiles={
            name: tuple(np.quantile(column[finite], QUANTILE_LEVELS).tolist()) if finite.any() else ()
            for name, column in (("s_id", table.s_id), ("s_ood", table.s_ood))
        },
    )
