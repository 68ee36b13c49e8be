"""What becomes of each kind of sample, and of each predicted class."""

from typing import Any

import plotly.graph_objects as go

from calibration.report.document import ReportDocument, Share
from calibration.report.figures.base import Figure
from calibration.report.style import CORRECT, GREEN, GREY, OOD, PINK, SKY, VIOLET, axis, layout, named_rows, text

MOST_ROWS = 30
REASONS = (
    ("accepted", "accepted", GREEN),
    ("low_id", "rejected: s_id too low", SKY),
    ("low_ood", "rejected: s_ood too low", PINK),
    ("low_both", "rejected: both too low", VIOLET),
    ("not_finite", "rejected: score not finite", GREY),
)


def stopped(document: ReportDocument) -> Figure:
    """Which door stops what, one bar a kind of sample."""
    rows = document.by_kind[:MOST_ROWS]
    figure = go.Figure(
        layout=layout(
            90 + 44 * len(rows),
            barmode="stack",
            xaxis=axis("share of the kind, %", range=[0, 100]),
            yaxis=named_rows([row.name for row in rows]),
        )
    )
    for key, name, colour in REASONS:
        amounts = [getattr(row, key) for row in rows]
        if not any(amounts):
            continue
        totals = [sum(getattr(row, reason) for reason, _, _ in REASONS) for row in rows]
        figure.add_bar(
            x=[100 * amount / total if total else 0.0 for amount, total in zip(amounts, totals, strict=True)],
            y=list(range(len(rows))), orientation="h", name=name, marker={"color": colour},
            customdata=amounts, text=[text(row.name) for row in rows], textposition="none",
            hovertemplate="%{text}<br>%{x:.2f} % (%{customdata:,})<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    caption = "A good gate fills the first bar with green and leaves none in the others."
    return Figure("stopped", "What becomes of each kind of sample", caption, figure)


def classes(document: ReportDocument) -> Figure:
    """Acceptance and risk by predicted class, the riskiest first."""
    rows = sorted(document.per_class, key=lambda row: -(row.risk.value or 0.0))[:MOST_ROWS]
    figure = go.Figure(
        layout=layout(
            110 + 30 * len(rows), xaxis=axis("%", rangemode="tozero"), yaxis=named_rows([row.name for row in rows])
        )
    )
    for key, name, colour, symbol, shift in (
        ("acceptance", "accepted share of this answer", CORRECT, "circle", -0.12),
        ("risk", "risk of an accepted answer", OOD, "diamond", 0.12),
    ):
        shown = [(place, row, getattr(row, key)) for place, row in enumerate(rows)]
        shown = [(place, row, share) for place, row, share in shown if share.value is not None]
        figure.add_scatter(
            x=[100 * share.value for _, _, share in shown], y=[place + shift for place, _, _ in shown], mode="markers",
            name=name, marker={"color": colour, "symbol": symbol, "size": 10},
            error_x=_error_bars([share for _, _, share in shown]),
            text=[f"{text(row.name)}<br>{row.accepted:,} of {row.rows:,} accepted" for _, row, _ in shown],
            hovertemplate="%{text}<br>%{x:.2f} %<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    left_out = len(document.per_class) - len(rows)
    more = f" {left_out} classes with less risk are left out." if left_out else ""
    intervals = "" if document.table.weighted else ", with exact 95 % intervals"
    caption = f"By the class the model predicts, riskiest first{intervals}.{more}"
    return Figure("classes", "Acceptance and risk by class", caption, figure)


def _error_bars(shares: list[Share]) -> dict[str, Any] | None:
    ends = [(share.value, share.low, share.high) for share in shares]
    known = [(v, low, high) for v, low, high in ends if v is not None and low is not None and high is not None]
    if len(known) < len(shares):
        return None
    return {
        "type": "data", "symmetric": False, "thickness": 1.5, "width": 0,
        "array": [100 * (high - value) for value, _, high in known],
        "arrayminus": [100 * (value - low) for value, low, _ in known],
    }  # fmt: skip
