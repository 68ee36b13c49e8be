"""The report in sentences: what the policy accepts, at what risk, certified for which mix."""

from calibration.evidence import PrevalenceBudget
from calibration.policy import Policy
from calibration.report.document import Decisions, Share


def verdict(
    policy: Policy, given: bool, everything: Decisions, budget: PrevalenceBudget | None, seen: bool = False
) -> list[str]:
    """One sentence each; that of the budget, if there is one, is the last.

    `given` is False where the thresholds were chosen on the table itself, `seen` is True where the policy was
    calibrated on it.
    """
    return [
        _accepts(policy, given, everything),
        _risk(everything),
        _certified(policy, given),
        *([] if budget is None else [budget_sentence(budget, chosen_here=seen or not given)]),
    ]


def budget_sentence(budget: PrevalenceBudget, *, chosen_here: bool) -> str:
    """How much OOD traffic these decisions stand, as measured on the table of the report.

    The bounds are exact for thresholds that are fixed before the samples are seen, and say so where they were not.
    """
    if budget.id_only:
        return "This table has no out-of-distribution samples, so it says nothing about such traffic."
    limit, sure = f"{100 * budget.risk:.3g} %", f"{100 * (1 - budget.delta):.3g} %"
    if budget.pi_star is None:
        return (
            f"By this table a risk of at most {limit} cannot be stated with {sure} confidence for any mix of traffic,"
            " not even without out-of-distribution inputs."
        )
    return (
        f"By this table the risk stays at or below {limit} (with {sure} confidence) while at most"
        f" {floored(100 * budget.pi_star)} % of the traffic is out-of-distribution of the kind seen here"
        + ("; that confidence would take thresholds chosen on other samples." if chosen_here else ".")
    )


def floored(value: float) -> str:
    """Two decimals, rounded down: a budget must not grow by being printed."""
    return f"{int(value * 100 + 1e-9) / 100:.2f}".rstrip("0").rstrip(".")


def _accepts(policy: Policy, given: bool, everything: Decisions) -> str:
    whose = f"Policy {policy.name}" if policy.number else "The policy"
    if not given:
        whose = "The best pair of thresholds for this table"
    start = f"{whose} accepts {_percent(everything.acceptance)} of these samples"
    if everything.ood_acceptance.value is None:
        return f"{start}; all of them are in-distribution."
    return (
        f"{start}: {_percent(everything.coverage)} of the in-distribution and"
        f" {_percent(everything.ood_acceptance)} of the out-of-distribution ones."
    )


def _risk(everything: Decisions) -> str:
    if everything.accepted <= 0:
        return "It accepts nothing, so it makes no error and gives no answer."
    return (
        f"Of what it accepts, {_percent(everything.risk)} is wrong: {everything.false_accept_id:,.6g} misclassified"
        f" and {everything.false_accept_ood:,.6g} out-of-distribution among {everything.accepted:,.6g} accepted."
    )


def _certified(policy: Policy, given: bool) -> str:
    if not given:
        return "Nothing is certified: the thresholds were chosen on these very samples, so all figures are optimistic."
    if policy.certificate is None or policy.certificate.kind == "none":
        return "Nothing is certified: the policy carries no certificate."
    if policy.status == "rejected":
        return "Nothing is certified: held-out data contradicted the policy, and it was rejected."
    scope, statement = policy.certificate.scope, policy.certificate.statement.rstrip(".")
    return f"Certified: {statement}." if scope in statement else f"Certified ({scope}): {statement}."


def percent(value: float, digits: int = 3) -> str:
    """A share with as many significant digits, noughts too: 1.00, 88.0, 100."""
    return f"{100 * value:#.{digits}g}".rstrip(".")


def _percent(share: Share) -> str:
    return "none" if share.value is None else f"{percent(share.value)} %"
