"""What the two certifying selectors share: plain samples, enough of them, and the words of the certificate."""

import math
from typing import Literal

from calibration.binomial import samples_needed
from calibration.errors import SelectionRefused
from calibration.evidence import Certificate
from calibration.resample import accepted_by
from calibration.select.base import Parameters, stated_mix
from calibration.splits import Splits, has_weights, plain_sample, repeats_samples
from calibration.table import ScoreTable

_HOPELESS = 50  # times the present data: beyond that, asking for samples is no advice


def exact_parts(splits: Splits, parameters: Parameters) -> tuple[ScoreTable, ScoreTable]:
    """Selection and certification parts as unweighted samples of the stated mix."""
    if splits.certification is None:
        raise SelectionRefused(
            "a certificate needs a certification split: --split takes three shares, such as 30/40/30"
        )
    parts = []
    for index, part in enumerate((splits.selection, splits.certification)):
        parts.append(plain_sample(stated_mix(part, parameters), parameters.seed + 1 + index))
    return parts[0], parts[1]


def sampling_notes(splits: Splits, parts: tuple[ScoreTable, ScoreTable], parameters: Parameters) -> tuple[str, ...]:
    """What to say when weights, a stated mix or repeated ids left only a part of the rows for the exact tests."""
    assert splits.certification is not None
    used, had = sum(map(len, parts)), len(splits.selection) + len(splits.certification)
    return (
        ()
        if used == had
        else (f"exact tests used a plain sample of {used:,} of {had:,} rows: {_why(parameters, splits)}",)
    )


def _why(parameters: Parameters, splits: Splits) -> str:
    """What a plain sample leaves out."""
    weighted = parameters.prevalence is not None or any(map(has_weights, splits.named().values()))
    repeated = any(map(repeats_samples, splits.named().values()))
    reasons = {"what the weights describe": weighted, "one row of each id": repeated}
    return " and ".join(reason for reason, holds in reasons.items() if holds)


def certification_part(splits: Splits, usable: int, needed: int, risk: float, delta: float) -> None:
    """Refuse when even an error-free certification split could not certify the risk, with the size that could."""
    if usable >= needed:
        return
    total = sum(len(part) for part in splits.named().values())
    rows = math.ceil(total * needed / max(usable, 1))
    raise SelectionRefused(
        f"{usable} usable samples in the certification split are too few: risk ≤ {percent(risk)} at δ = "
        f"{percent(delta)} needs at least {needed} accepted without an error, so bring at least {rows:,} samples "
        f"of this kind (now {total:,})"
    )


def out_of_reach(
    splits: Splits,
    parts: tuple[ScoreTable, ScoreTable],
    pair: tuple[float, float],
    parameters: Parameters,
    level: float,
) -> SelectionRefused:
    """The refusal when nothing was certified: how many samples would do, if samples are what is missing.

    `pair` are the most promising thresholds, `level` is what each test may spend of delta.
    """
    risk, total = parameters.risk_limit, sum(len(part) for part in splits.named().values())
    accepts = [accepted_by(part, *pair) for part in parts]
    accepted = sum(int(accept.sum()) for accept in accepts)
    wrong = sum(int((accept & ~part.correct).sum()) for accept, part in zip(accepts, parts, strict=True))
    share = accepted / sum(len(part) for part in parts)
    reason = (
        f"risk ≤ {percent(risk)} at δ = {percent(parameters.delta)} cannot be certified with {total:,} samples: "
        f"the most promising thresholds accept {percent(share)} and have {wrong} wrong of {accepted}"
    )
    # Half an error on top: none among a handful are no promise of none among many.
    estimate = (wrong + 0.5) / (accepted + 1)
    per_accepted = total / len(parts[1]) / share if share else math.inf
    assumptions = [(estimate, "for which it takes")]
    if estimate < 2 * risk:
        assumptions.append((risk / 2, "and if their true risk is half the limit it takes"))
    for assumed, words in assumptions:
        needed = samples_needed(risk, level, assumed)
        rows = math.inf if needed is None else needed * per_accepted
        if rows <= _HOPELESS * total:
            return SelectionRefused(f"{reason}, {words} about {max(math.ceil(rows), total + 1):,} samples")
    return SelectionRefused(f"{reason}, which promises nothing; allow more risk or use better scores")


def certificate(
    kind: Literal["sgr", "pareto"],
    scope: str,
    parameters: Parameters,
    *,
    bound: float,
    accepted: int,
    wrong: int,
    tests: int,
) -> Certificate:
    """The certificate of a risk limit, with the counts of the certification split behind it."""
    risk, delta = parameters.risk_limit, parameters.delta
    return Certificate(
        kind=kind,
        scope=scope,
        risk=risk,
        delta=delta,
        bound=bound,
        accepted=accepted,
        wrong=wrong,
        tests=tests,
        statement=f"selective risk ≤ {percent(risk)} with probability ≥ {percent(1 - delta)}, {scope}",
    )


def scope_of(splits: Splits, parameters: Parameters) -> str:
    """For which mix of inputs the certificate speaks."""
    seen = any(part.weights[~part.is_id].sum() > 0.0 for part in splits.named().values())
    if not seen or parameters.prevalence == 0:
        return "id_only"
    if parameters.prevalence is not None:
        return f"stated mix only: {percent(parameters.prevalence)} OOD of the calibration's kind"
    return "calibration mix only"


def percent(share: float) -> str:
    """5 %, 0.5 %, 12.3 %: no more digits than it takes."""
    return f"{100 * share:.3g} %"
