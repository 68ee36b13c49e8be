"""Risk against coverage: each single score, the cloud of pairs and its lower envelope (Li et al., Figure 2)."""

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from calibration.metrics.grid import grid_sums
from calibration.metrics.sections import RISKS
from calibration.report.analysis import Analysis
from calibration.report.figures.base import Figure
from calibration.report.style import DOUBLE, GREY, POLICY, S_ID, S_OOD, axis, layout, small, thin
from calibration.table import ScoreTable

CLOUD_SIDE = 36
GATES = {
    "double": ("both doors", DOUBLE, "solid"),
    "s_id": ("s_id alone", S_ID, "dash"),
    "s_ood": ("s_ood alone", S_OOD, "dot"),
}


def risk_against_coverage(analysis: Analysis) -> Figure:
    """Curves, cloud, the policy, and the coverage that each gate reaches at the reported risks."""
    figure = go.Figure(
        layout=layout(
            480,
            xaxis=axis("coverage: accepted of in-distribution, %", range=[-1, 101]),
            yaxis=axis("selective risk, %", rangemode="tozero"),
        )
    )
    coverage, risk = _cloud(analysis.judged.table)
    figure.add_scatter(
        x=small(coverage), y=small(risk), mode="markers", name="pairs of thresholds", hoverinfo="skip",
        marker={"color": GREY, "size": 4, "opacity": 0.45},
    )  # fmt: skip
    for key in ("s_id", "s_ood", "double"):
        name, colour, dash = GATES[key]
        curve = getattr(analysis.curves, key)
        keep = thin(len(curve.coverage))
        figure.add_scatter(
            x=small(100 * curve.coverage[keep]), y=small(100 * curve.risk[keep]), mode="lines", name=name,
            line={"color": colour, "width": 3 if key == "double" else 2.2, "dash": dash},
            hovertemplate="coverage %{x:.2f} %<br>risk %{y:.3f} %<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    _coverage_at_risk(figure, analysis)
    everything = analysis.document.decisions["all"]
    if everything.risk.value is not None and everything.coverage.value is not None:
        figure.add_scatter(
            x=[100 * everything.coverage.value], y=[100 * everything.risk.value], mode="markers", name="the policy",
            marker={"symbol": "circle", "size": 13, "color": POLICY, "line": {"width": 2, "color": "#ffffff"}},
            hovertemplate="coverage %{x:.2f} %<br>risk %{y:.3f} %<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    caption = (
        "Risk counts misclassified and out-of-distribution samples among the accepted; lower is better. The green line"
        " is the least risk that any pair reaches at a coverage; diamonds mark the coverage at a risk of"
        f" {', '.join(str(risk) for risk in RISKS)} %."
    )
    return Figure("risk", "Risk against coverage", caption, figure)


def _coverage_at_risk(figure: go.Figure, analysis: Analysis) -> None:
    points = [
        (100 * reached, 100 * point.at, gate)
        for point in analysis.document.operating
        for gate in GATES
        if point.what == "coverage_at_risk" and (reached := getattr(point, gate))
    ]
    figure.add_scatter(
        x=[point[0] for point in points], y=[point[1] for point in points], mode="markers", name="coverage at risk",
        marker={
            "symbol": "diamond", "size": 10, "color": [GATES[point[2]][1] for point in points],
            "line": {"width": 1.5, "color": "#ffffff"},
        },
        text=[GATES[point[2]][0] for point in points], showlegend=False,
        hovertemplate="%{text}<br>coverage %{x:.2f} % at a risk of %{y:g} %<extra></extra>",
    )  # fmt: skip


def _cloud(table: ScoreTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coverage and risk in percent of a grid of pairs at the quantiles of the ID rows."""
    finite = table.finite
    s_id, s_ood, weight = table.s_id[finite], table.s_ood[finite], table.weights[finite]
    of_id, correct = table.is_id[finite], table.correct[finite]
    if not of_id.any():
        return np.empty(0), np.empty(0)
    levels = np.linspace(0.0, 1.0, CLOUD_SIDE)
    taus = [np.unique(np.quantile(score[of_id], levels, method="inverted_cdf")) for score in (s_id, s_ood)]
    amounts = [np.where(of_id, weight, 0.0), np.where(correct, 0.0, weight), weight]
    covered, wrong, accepted = grid_sums(s_id, s_ood, (taus[0], taus[1]), amounts)
    some = accepted > 0
    n_id = float(table.weights[table.is_id].sum())
    return 100 * covered[some] / n_id, 100 * wrong[some] / accepted[some]
