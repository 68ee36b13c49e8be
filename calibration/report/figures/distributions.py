"""Where the scores lie, and whether the probabilities mean what they say."""

from typing import Literal

import numpy as np
import plotly.graph_objects as go

from calibration.metrics import reliability
from calibration.report.analysis import Analysis
from calibration.report.figures.base import Figure
from calibration.report.outcomes import kinds_by_group
from calibration.report.style import (
    CORRECT,
    GREY,
    KINDS,
    OOD_GROUPS,
    POLICY,
    axis,
    faded,
    layout,
    small,
    text,
)
from calibration.table import ScoreTable

BINS = 60
MOST_GROUPS = len(OOD_GROUPS)


def histogram(analysis: Analysis, score: Literal["s_id", "s_ood"]) -> Figure:
    """The distribution of one score for each kind of sample."""
    table = analysis.judged.table
    values = getattr(table, score)
    inside = values[table.finite]
    low, high = np.quantile(inside, [0.001, 0.999])
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
    kinds = kinds_by_group(table)
    height = 320 + 12 * min(len(kinds), 2 + MOST_GROUPS)  # a narrow legend has one line a kind
    figure = go.Figure(layout=layout(height, xaxis=axis(score), yaxis=axis("share of the kind, %", rangemode="tozero")))
    groups = 0
    for name, mask in kinds.items():
        colour = KINDS[name][0] if name in KINDS else OOD_GROUPS[groups % MOST_GROUPS]
        groups += name not in KINDS
        if groups > MOST_GROUPS:
            break
        rows = mask & table.finite
        weight = table.weights[rows]
        held, _ = np.histogram(np.clip(values[rows], edges[0], edges[-1]), edges, weights=weight)
        figure.add_scatter(
            x=small((edges[1:] + edges[:-1]) / 2), y=small(100.0 * held / max(held.sum(), np.finfo(float).tiny)),
            mode="lines", name=text(name, 40), fill="tozeroy", fillcolor=faded(colour, 0.16),
            line={"color": colour, "shape": "hvh", "width": 2},
            hovertemplate=f"{score} %{{x:.4g}}<br>%{{y:.2f}} %<extra>%{{fullData.name}}</extra>",
        )  # fmt: skip
    tau = getattr(analysis.policy, f"tau_{score[2:]}")
    reach = 0.5 * (edges[-1] - edges[0])
    if edges[0] - reach <= tau <= edges[-1] + reach:
        figure.add_vline(x=tau, line={"color": POLICY, "dash": "dash", "width": 2})
    left_out = f" Only {MOST_GROUPS} groups are drawn." if groups > MOST_GROUPS else ""
    caption = f"Each kind adds up to 100 %; the ends hold what lies beyond. Dashed: the policy's threshold.{left_out}"
    return Figure(f"histogram-{score[2:]}", f"{score} by kind of sample", caption, figure)


def reliability_diagram(table: ScoreTable) -> Figure:
    """Stated against observed accuracy on ID rows, and how many rows say so."""
    found = reliability(table)
    held = found.weight > 0
    centre, width = (found.edges[:-1] + found.edges[1:])[held] / 2, np.diff(found.edges)[held]
    share = 100 * found.weight[held] / found.weight.sum()
    figure = go.Figure(
        layout=layout(
            460,
            xaxis=axis("largest probability", range=[0, 1], anchor="y2"),
            yaxis=axis("accuracy", range=[0, 1.02], domain=[0.3, 1.0]),
            yaxis2=axis("samples, %", domain=[0.0, 0.22], rangemode="tozero"),
        )
    )
    figure.add_bar(
        x=centre, y=found.accuracy[held], width=width, name="observed accuracy",
        marker={"color": faded(CORRECT, 0.75)}, customdata=np.stack([share, found.confidence[held]], axis=1),
        hovertemplate="stated %{customdata[1]:.3f}<br>observed %{y:.3f}<br>%{customdata[0]:.1f} % of the samples"
        "<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=found.confidence[held], y=found.accuracy[held], mode="markers", name="mean stated, observed",
        marker={"color": POLICY, "size": 8, "line": {"width": 1, "color": "#ffffff"}}, hoverinfo="skip",
    )  # fmt: skip
    figure.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", name="stated = observed", line={"dash": "dot", "color": POLICY},
        hoverinfo="skip",
    )  # fmt: skip
    figure.add_bar(
        x=centre, y=share, width=width, yaxis="y2", showlegend=False, marker={"color": GREY},
        hovertemplate="%{y:.1f} % of the samples<extra></extra>",
    )  # fmt: skip
    caption = (
        "In-distribution samples in 15 bins of their largest probability. Bars below the dotted line are overconfident;"
        f" expected calibration error {found.ece:.4f}."
    )
    return Figure("reliability", "Reliability of the probabilities", caption, figure)
