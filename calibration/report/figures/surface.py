"""F1 over both thresholds (Li et al., Figure 1b), with what each score reaches alone along the sides."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from calibration.metrics import ds_f1, f1, f1_surface
from calibration.metrics.grid import F1Surface
from calibration.report.analysis import Analysis
from calibration.report.figures.base import Figure
from calibration.report.style import DOUBLE, POLICY, S_ID, S_OOD, axis, layout, small
from calibration.table import ScoreTable
from calibration.thresholds import OPEN

SIDE = 61
MAIN, MARGIN = [0.0, 0.78], [0.82, 1.0]


@dataclass(frozen=True)
class _Ranks:
    """Thresholds as the share of samples below them: F1 depends on the order of the scores alone."""

    ordered: NDArray[np.float64]

    def place(self, tau: float) -> float:
        if tau == OPEN or not len(self.ordered):
            return 0.0
        return 100.0 * float(np.searchsorted(self.ordered, tau)) / len(self.ordered)


def surface(analysis: Analysis) -> Figure:
    """A map of F1, its ridges beside it, and the pairs that matter on it."""
    table = analysis.judged.table
    grid = f1_surface(table, SIDE)
    by_id, by_ood = _Ranks(np.sort(table.s_id[table.finite])), _Ranks(np.sort(table.s_ood[table.finite]))
    x = [by_id.place(tau) for tau in grid.tau_id]
    y = [by_ood.place(tau) for tau in grid.tau_ood]
    shares = {"range": [-2, 102], "showgrid": False}
    values = {"range": [0.0, 1.08 * max(float(grid.f1.max()), 1e-3)], "nticks": 4, "tickangle": 0}
    figure = go.Figure(
        layout=layout(
            560,
            xaxis=axis("τ_id: % of samples below", domain=MAIN, **shares),
            yaxis=axis("τ_ood: % of samples below", domain=MAIN, **shares),
            xaxis2=axis("F1", domain=MARGIN, anchor="y", **values),
            yaxis2=axis("F1", domain=MARGIN, anchor="x", **values),
        )
    )
    constant = [name for name, places in (("s_id", x), ("s_ood", y)) if len(places) < 2]
    if not constant:  # plotly cannot draw lines of height over less than two columns and rows
        _map(figure, x, y, grid)
    _ridges(figure, x, y, grid.f1)
    _marks(figure, analysis, table, by_id, by_ood)
    start = "Brighter is better; the star is the best pair."
    if constant:
        start = f"There is no map, since {' and '.join(constant)} never var{'y' if len(constant) > 1 else 'ies'}."
    caption = (
        f"{start} Along the sides: what one score reaches alone (dotted) and with the best partner (solid). The gap"
        " between them is what the second door is worth."
    )
    return Figure("surface", "F1 over both thresholds", caption, figure)


def _map(figure: go.Figure, x: list[float], y: list[float], grid: F1Surface) -> None:
    taus = np.stack(np.broadcast_arrays(grid.tau_id[None, :], grid.tau_ood[:, None]), axis=-1)
    figure.add_contour(
        x=small(x), y=small(y), z=small(grid.f1.T), colorscale="Viridis", showscale=False, name="F1",
        contours={"coloring": "heatmap", "showlabels": True, "labelfont": {"color": "#ffffff", "size": 11}},
        line={"width": 0.6, "color": "rgba(255,255,255,0.55)"}, customdata=small(taus),
        hovertemplate="τ_id %{customdata[0]:.4g}<br>τ_ood %{customdata[1]:.4g}<br>F1 %{z:.4f}<extra></extra>",
    )  # fmt: skip


def _ridges(figure: go.Figure, x: list[float], y: list[float], values: NDArray[np.float64]) -> None:
    """The first row and column have the other door open, so they are the curves of a single score."""
    lines = (
        ("s_id alone", x, values[:, 0], S_ID, "dot"),
        ("s_id with the best τ_ood", x, values.max(axis=1), DOUBLE, "solid"),
        ("s_ood alone", y, values[0, :], S_OOD, "dot"),
        ("s_ood with the best τ_id", y, values.max(axis=0), DOUBLE, "solid"),
    )
    for i, (name, places, ridge, colour, dash) in enumerate(lines):
        above = i < 2
        figure.add_scatter(
            x=small(places if above else ridge), y=small(ridge if above else places), mode="lines", name=name,
            xaxis="x" if above else "x2", yaxis="y2" if above else "y", showlegend=i in (0, 2),
            line={"color": colour, "width": 2.5, "dash": dash},
            hovertemplate=f"below %{{{'x' if above else 'y'}:.1f}} %<br>F1 %{{{'y' if above else 'x'}:.4f}}"
            "<extra>%{fullData.name}</extra>",
        )  # fmt: skip


def _marks(figure: go.Figure, analysis: Analysis, table: ScoreTable, by_id: _Ranks, by_ood: _Ranks) -> None:
    best, only_id, only_ood, tau = ds_f1(table), f1(table, "s_id"), f1(table, "s_ood"), analysis.policy
    achieved = analysis.document.decisions["all"].f1
    marks = [
        (f"best with s_id alone, F1 {only_id.value:.4f}", only_id.tau, OPEN, "triangle-up", 13),
        (f"best with s_ood alone, F1 {only_ood.value:.4f}", OPEN, only_ood.tau, "triangle-right", 13),
        (f"best pair, DS-F1 {best.value:.4f}", best.tau_id, best.tau_ood, "star", 16),
    ]
    if (tau.tau_id, tau.tau_ood) != (best.tau_id, best.tau_ood):
        value = "" if achieved is None else f", F1 {achieved:.4f}"
        marks.append((f"the policy{value}", tau.tau_id, tau.tau_ood, "circle", 13))
    for name, tau_id, tau_ood, symbol, size in marks:
        if np.isposinf(tau_id) or np.isposinf(tau_ood):  # nothing correct can be accepted at all
            continue
        fill = POLICY if symbol == "circle" else "#ffffff"
        figure.add_scatter(
            x=[by_id.place(tau_id)], y=[by_ood.place(tau_ood)], mode="markers", name=name, cliponaxis=False,
            marker={"symbol": symbol, "size": size, "color": fill, "line": {"width": 1.8, "color": "#16191d"}},
            hovertemplate="%{fullData.name}<extra></extra>",
        )  # fmt: skip
