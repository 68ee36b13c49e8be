"""The plane of both scores: every sample, both doors, and what the doors let through."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from calibration.report.analysis import Analysis
from calibration.report.figures.base import Figure
from calibration.report.outcomes import class_name, kinds
from calibration.report.sampling import sample_of_kinds
from calibration.report.style import DOUBLE, KINDS, POLICY, axis, faded, layout, small, text
from calibration.table import ScoreTable
from calibration.thresholds import OPEN

POINTS = 2500
CELLS = 64
FEW = 500
"""Rows of a kind from which lines of density mean something."""
HELD = (0.5, 0.9, 0.2)
"""First, last and step of the shares of a kind that its density lines hold."""

Range = tuple[float, float]


def plane(analysis: Analysis) -> Figure:
    """Samples by their two scores. The page moves the shapes when a reader moves the thresholds."""
    table = analysis.judged.table
    places = np.flatnonzero(table.finite)
    rows = places[sample_of_kinds(table.take(places), POINTS)]
    tau = analysis.policy
    x_range, y_range = _frame(table.s_id[places], tau.tau_id), _frame(table.s_ood[places], tau.tau_ood)
    figure = go.Figure(
        layout=layout(
            520,
            xaxis=axis("s_id → the label can be trusted", range=x_range),
            yaxis=axis("s_ood → like the training data", range=y_range),
            shapes=_doors(tau.tau_id, tau.tau_ood, x_range, y_range),
            annotations=_labels(tau.tau_id, tau.tau_ood),
        )
    )
    many = len(rows) < len(places)
    shown = kinds(table)
    for name, mask in shown.items():
        if many and np.count_nonzero(mask & table.finite) >= FEW:
            figure.add_trace(_density(table, mask & table.finite, name, x_range, y_range))
    for name, mask in shown.items():
        figure.add_trace(_points(analysis, rows[mask[rows]], name, 0.4 if many else 0.6))
    return Figure("plane", "The plane of both scores", _caption(len(rows), len(places), many), figure)


def _caption(shown: int, total: int, many: bool) -> str:
    where = "Accepted samples lie in the shaded corner, beyond both doors (dashed: the policy's); the rest is rejected."
    if not many:
        return f"{where} Hover for a sample's id."
    lines = "lines hold 50, 70 and 90 % of a kind"
    return f"{where} {shown:,} of {total:,} samples are drawn as points, the {lines}. Hover for a sample's id."


def _frame(values: NDArray[np.float64], tau: float) -> Range:
    """What to show: nearly all values and the door, not what lies far away and would squeeze the rest."""
    low, high = np.quantile(values, [0.0005, 0.9995])
    reach = 0.5 * (high - low)
    if low - reach <= tau <= high + reach:
        low, high = min(low, tau), max(high, tau)
    margin = 0.04 * (high - low) or 1.0
    return float(low - margin), float(high + margin)


def _doors(tau_id: float, tau_ood: float, x_range: Range, y_range: Range) -> list[dict[str, Any]]:
    """In this order: the accepted corner, the reader's doors, the policy's doors."""
    left, bottom = max(tau_id, x_range[0]), max(tau_ood, y_range[0])
    corner = {
        "type": "rect", "x0": left, "x1": x_range[1], "y0": bottom, "y1": y_range[1],
        "fillcolor": faded(DOUBLE, 0.12), "line": {"width": 0}, "layer": "below",
    }  # fmt: skip
    reader = {"type": "line", "line": {"color": DOUBLE, "width": 2.5}}
    fixed = {"type": "line", "line": {"color": POLICY, "width": 2, "dash": "dash"}}
    vertical = {"x0": left, "x1": left, "y0": 0, "y1": 1, "yref": "paper", "visible": tau_id != OPEN}
    horizontal = {"y0": bottom, "y1": bottom, "x0": 0, "x1": 1, "xref": "paper", "visible": tau_ood != OPEN}
    hidden = {"visible": False}  # the page shows them when they leave the policy's
    return [
        corner,
        reader | vertical | hidden,
        reader | horizontal | hidden,
        fixed | vertical,
        fixed | horizontal,
    ]


def _labels(tau_id: float, tau_ood: float) -> list[dict[str, Any]]:
    plain = {"showarrow": False, "xanchor": "left", "yanchor": "bottom"}
    labels = [
        plain | {"x": tau_id, "y": 0, "yref": "paper", "text": "<b>τ_id</b>", "visible": tau_id != OPEN},
        plain | {"x": 0, "xref": "paper", "y": tau_ood, "text": "<b>τ_ood</b>", "visible": tau_ood != OPEN},
    ]
    return [label for label in labels if label["visible"]]


def _points(analysis: Analysis, rows: NDArray[np.intp], name: str, opacity: float) -> go.Scatter:
    table = analysis.judged.table
    colour, symbol = KINDS[name]
    return go.Scatter(
        x=small(table.s_id[rows]), y=small(table.s_ood[rows]), mode="markers", name=name,
        marker={"color": colour, "symbol": symbol, "size": 6, "opacity": opacity},
        text=[_hover(table, row, analysis.classes) for row in rows],
        hovertemplate="%{text}<br>s_id %{x:.4g}<br>s_ood %{y:.4g}<extra>%{fullData.name}</extra>",
    )  # fmt: skip


def _hover(table: ScoreTable, row: np.intp, classes: Sequence[str] | None) -> str:
    words = [text(table.id[row]) if table.id is not None else f"row {row + 1}"]
    if table.prediction is not None:
        words.append(f"predicted {text(class_name(table.prediction[row].item(), classes), 40)}")
    if table.group is not None and table.group[row]:
        words.append(text(table.group[row], 40))
    return "<br>".join(words)


def _density(table: ScoreTable, mask: NDArray[np.bool_], name: str, x_range: Range, y_range: Range) -> go.Contour:
    """Lines around the densest cells that hold a share of the kind."""
    from scipy.ndimage import gaussian_filter

    counts, x_edges, y_edges = np.histogram2d(
        table.s_id[mask], table.s_ood[mask], CELLS, (x_range, y_range), weights=table.weights[mask]
    )
    smooth = gaussian_filter(counts, 2.0)
    order = np.argsort(smooth, axis=None)[::-1]
    held = np.empty(smooth.size)
    held[order] = np.cumsum(smooth.ravel()[order]) / max(smooth.sum(), np.finfo(float).tiny)
    first, last, step = HELD
    colour = KINDS[name][0]
    return go.Contour(
        x=small((x_edges[1:] + x_edges[:-1]) / 2), y=small((y_edges[1:] + y_edges[:-1]) / 2),
        z=small(held.reshape(smooth.shape).T), name=f"{name}: density", showlegend=False, showscale=False,
        contours={"coloring": "lines", "start": first, "end": last, "size": step},
        colorscale=[[0, colour], [1, colour]], line={"width": 1.5}, hoverinfo="skip",
    )  # fmt: skip
