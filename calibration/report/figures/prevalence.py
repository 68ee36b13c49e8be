"""R(π): the risk that the policy would have at another share of OOD traffic, and the budget π*."""

import numpy as np
import plotly.graph_objects as go

from calibration.certify import mixed_risk
from calibration.evidence import PrevalenceBudget
from calibration.report.figures.base import Figure
from calibration.report.style import DOUBLE, POLICY, axis, faded, layout, small
from calibration.report.verdict import floored

LEVELS = np.concatenate([np.linspace(0.0, 0.1, 51), np.linspace(0.11, 0.9, 80)])


def prevalence(budget: PrevalenceBudget, caption: str) -> Figure:
    """The estimate, its upper bound, the limit and the largest share that keeps to it."""
    c, r, a = budget.id_acceptance, budget.id_error, budget.ood_acceptance
    assert a is not None
    estimate = [100 * mixed_risk(pi, c.value, r.value, a.value) for pi in LEVELS]
    upper = [100 * mixed_risk(pi, c.low, r.high, a.high) for pi in LEVELS]
    figure = go.Figure(
        layout=layout(
            420,
            xaxis=axis("out-of-distribution share of the traffic, %", range=[-1, 91]),
            yaxis=axis("selective risk, %", range=[0, 1.06 * max(*upper, 100 * budget.risk)]),
        )
    )
    x = small(100 * LEVELS)
    hover = "at %{x:.3g} % OOD<br>risk %{y:.3g} %<extra>%{fullData.name}</extra>"
    figure.add_scatter(x=x, y=small(estimate), mode="lines", name="estimate", line={"color": DOUBLE, "width": 2.5},
                       hovertemplate=hover)  # fmt: skip
    figure.add_scatter(x=x, y=small(upper), mode="lines", name=f"upper bound, {100 * (1 - budget.delta):.3g} %",
                       line={"color": DOUBLE, "dash": "dash"}, fill="tonexty", fillcolor=faded(DOUBLE, 0.12),
                       hovertemplate=hover)  # fmt: skip
    figure.add_scatter(
        x=[-1, 91], y=[100 * budget.risk] * 2, mode="lines", name=f"limit, {100 * budget.risk:.3g} %",
        line={"color": POLICY, "dash": "dot", "width": 2}, hoverinfo="skip",
    )  # fmt: skip
    if budget.pi_star is not None:
        star = 100 * min(budget.pi_star, 0.9)
        figure.add_scatter(
            x=[star], y=[100 * budget.risk], mode="markers", name=f"budget π* = {floored(100 * budget.pi_star)} %",
            marker={"symbol": "star", "size": 16, "color": POLICY, "line": {"width": 1, "color": "#ffffff"}},
            hovertemplate="%{fullData.name}<extra></extra>",
        )  # fmt: skip
    return Figure("prevalence", "Risk against the share of OOD traffic", caption, figure)
