"""A policy in words: what a person needs to see in ten seconds."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from calibration.compare import Comparison
    from calibration.evidence import Estimate, Evidence
    from calibration.policy import Policy

_COLOURS = {"validated": "green", "rejected": "red", "candidate": "yellow"}
_WIDTH = 13
_MOST_TRANSFERS = 6
_MOST_NOTES = 3


def show(policy: "Policy", fate: str | None = None) -> None:
    """Print a policy, the verdict first."""
    status = click.style(policy.status, fg=_COLOURS[policy.status], bold=True)
    click.echo(f"policy {policy.name} · {policy.method} · {status}{f' · {fate}' if fate else ''}")
    for reason in policy.status_reasons:
        click.echo(f"  {click.style('rejected because ' + reason, fg='red')}")
    for name, text in _lines(policy):
        click.echo(f"  {name:<{_WIDTH}}{text}")


def show_comparison(comparison: "Comparison", old: "Policy") -> None:
    """Print what a new policy changes against the active one."""
    verdict = "better" if comparison.better else "not better"
    rows = [
        (f"against {old.name}", f"{comparison.diff}"),
        ("", f"{verdict}: {comparison.why}"),
        ("", f"F1 {_signed(comparison.f1)}, {100 * (comparison.id_coverage.value or 0.0):+.1f} points of ID"),
    ]
    for name, text in rows:
        click.echo(f"  {name:<{_WIDTH}}{text}")


def percent(share: float | None) -> str:
    """A share in per cent, a dash where it is undefined."""
    return "–" if share is None else f"{100 * share:.1f} %"


def interval(found: "Estimate") -> str:
    """A share with its interval."""
    if found.low is None or found.high is None:
        return percent(found.value)
    return f"{percent(found.value)} ({100 * found.low:.1f}–{100 * found.high:.1f})"


def threshold(tau: float) -> str:
    """A threshold short enough to read; the file has every digit."""
    from calibration.thresholds import OPEN

    return "open" if tau == OPEN else f"{tau:.6g}"


def _lines(policy: "Policy") -> Iterable[tuple[str, str]]:
    yield "thresholds", _thresholds(policy)
    if policy.evidence is not None:
        yield from _evidence_lines(policy.evidence)
    certificate = policy.certificate
    if certificate is not None:
        if certificate.kind != "none":
            yield "certificate", certificate.statement
        if certificate.budget is not None:
            yield "OOD budget", certificate.budget.statement
    if policy.evidence is not None:
        yield from _single_lines(policy.evidence)
        yield from _transfer_lines(policy.evidence)
        yield from (("note", note) for note in policy.evidence.notes[:_MOST_NOTES])
    if policy.data is not None:
        data = policy.data
        split = policy.parameters.get("split", "")
        odd = f", {data.not_finite:,} not finite" if data.not_finite else ""
        yield "data", f"{data.n_id:,} ID + {data.n_ood:,} OOD rows{odd}, split {split}, seed {data.seed}"


def _thresholds(policy: "Policy") -> str:
    named = policy.scores
    first = f"τ_id {threshold(policy.tau_id)}{_by(named.get('s_id'))}"
    second = f"τ_ood {threshold(policy.tau_ood)}{_by(named.get('s_ood'))}"
    if policy.per_class:
        return f"one pair for each of {len(policy.per_class)} classes; strictest: {first}, {second}"
    return f"{first}   {second}"


def _by(score: str | None) -> str:
    return f" ({score})" if score else ""


def _evidence_lines(evidence: "Evidence") -> Iterable[tuple[str, str]]:
    found = evidence.outcome
    yield "held out", f"accepts {interval(found.id_coverage)} of ID"
    if found.ood_acceptance:
        groups = [f"{name} {interval(rate)}" for name, rate in found.ood_acceptance.items() if name != "all"]
        by_group = f": {', '.join(groups)}" if len(groups) > 1 else ""
        yield "", f"accepts {interval(found.ood_acceptance['all'])} of OOD{by_group}"
    yield "", f"of all it accepts {interval(found.selective_risk)} is wrong"
    yield "", f"F1 {_rate(found.f1)}, precision {percent(found.precision.value)}, recall {percent(found.recall.value)}"
    for claim in evidence.claims:
        measured = _rate(claim.held_out) if claim.metric == "f1" else interval(claim.held_out)
        verdict = "missed" if not claim.met else "within error" if claim.within_error else "met"
        yield "claim", f"{claim.what}: {verdict}, held out {measured}"


def _single_lines(evidence: "Evidence") -> Iterable[tuple[str, str]]:
    gains = {gain.over: gain for gain in evidence.gains}
    for door, single in evidence.single.items():
        if single.refused is not None:
            yield f"{door} alone", "no policy: " + single.refused.split(":")[0]
        elif single.f1 is not None and single.id_coverage is not None:
            gain = gains[door]  # type: ignore[index]
            kept = 100 * (gain.id_coverage.value or 0.0)
            yield (
                f"{door} alone",
                f"F1 {single.f1.value:.3f}, accepts {percent(single.id_coverage.value)} of ID; "
                f"two doors: F1 {_signed(gain.f1)}, {kept:+.1f} points of ID",
            )


def _transfer_lines(evidence: "Evidence") -> Iterable[tuple[str, str]]:
    """Held-out F1 of thresholds chosen with one OOD group and tested on another (Li et al., Table 2)."""
    for found in evidence.transfer[:_MOST_TRANSFERS]:
        rows = {row.door: row for row in found.rows}
        singles = ", ".join(f"{door} {rows[door].f1:.3f}" for door in ("s_id", "s_ood"))
        double = rows["double"]
        name = "F1 transfer" if found is evidence.transfer[0] else ""
        yield (
            name,
            f"{found.selected_on} → {found.tested_on}: two doors {double.f1:.3f} (best there {double.f1_optimal:.3f}), "
            + singles,
        )
    if len(evidence.transfer) > _MOST_TRANSFERS:
        yield "", f"… and {len(evidence.transfer) - _MOST_TRANSFERS} more pairs of groups in the JSON"


def _rate(found: "Estimate") -> str:
    if found.value is None:
        return "–"
    if found.low is None or found.high is None:
        return f"{found.value:.3f}"
    return f"{found.value:.3f} ({found.low:.3f}–{found.high:.3f})"


def _signed(found: "Estimate") -> str:
    if found.value is None:
        return "–"
    if found.low is None or found.high is None:
        return f"{found.value:+.4f}"
    return f"{found.value:+.4f} ({found.low:+.4f} to {found.high:+.4f})"
