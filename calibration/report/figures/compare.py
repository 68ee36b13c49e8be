"""The figures of a comparison: values per group, differences to the best, and the critical-difference diagram."""

from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from calibration.report.document import ComparisonSection, PairedDifference, RankTest
from calibration.report.figures.base import Figure
from calibration.report.style import DOUBLE, GREY, POLICY, SERIES, axis, layout, named_rows, text

NAMES = {"ds_f1": "DS-F1", "ds_aurc": "DS-AURC"}


def comparison_figures(section: ComparisonSection) -> Iterator[Figure]:
    """By key: joint, differences-ds_f1, differences-ds_aurc, ranks."""
    yield _joint(section)
    for metric in NAMES:
        gaps = [gap for gap in section.differences if gap.metric == metric]
        if gaps:
            yield _differences(metric, gaps, section.higher_is_better[metric])
    if section.ranks is not None:
        yield _critical_difference(section, section.ranks)


def _joint(section: ComparisonSection) -> Figure:
    names = [row.name for row in section.methods]
    figure = go.Figure(layout=layout(120 + 34 * len(names), xaxis=axis("DS-F1"), yaxis=named_rows(names)))
    for i, group in enumerate(section.methods[0].values):
        figure.add_scatter(
            x=[row.values[group]["ds_f1"] for row in section.methods], y=list(range(len(names))), mode="markers",
            name=text(group, 40), marker={"size": 11, "color": SERIES[i % len(SERIES)], "symbol": i % 24},
            text=[text(name) for name in names],
            hovertemplate="%{text}<br>DS-F1 %{x:.4f}<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    return Figure("joint", "DS-F1 of every table", "Further to the right is better; one mark a group.", figure)


def _differences(metric: str, gaps: Sequence[PairedDifference], higher_is_better: bool) -> Figure:
    best, name = gaps[0].against, NAMES[metric]
    figure = go.Figure(
        layout=layout(
            110 + 34 * len(gaps),
            xaxis=axis(f"difference in {name}", zeroline=True, zerolinewidth=2),
            yaxis=named_rows([gap.method for gap in gaps]),
        )
    )
    figure.add_scatter(
        x=[gap.difference for gap in gaps], y=list(range(len(gaps))), mode="markers", showlegend=False,
        marker={"size": 10, "color": DOUBLE},
        error_x={
            "type": "data", "symmetric": False, "array": [g.high - g.difference for g in gaps],
            "arrayminus": [g.difference - g.low for g in gaps], "thickness": 2, "width": 0,
        },
        text=[f"{text(gap.method)}<br>{gap.low:+.4f} to {gap.high:+.4f}" for gap in gaps],
        hovertemplate="%{text}<br>%{x:+.4f}<extra></extra>",
    )  # fmt: skip
    figure.add_vline(x=0, line={"color": POLICY, "dash": "dot", "width": 2})
    caption = (
        f"Same samples, drawn together; {'left' if higher_is_better else 'right'} of zero is worse than {best}. An"
        " interval that crosses zero leaves the order open."
    )
    return Figure(f"differences-{metric}", f"{name}: differences to the best", caption, figure)


def _critical_difference(section: ComparisonSection, ranks: RankTest) -> Figure:
    """Average ranks on a line on top; a bar below it joins methods that cannot be told apart (Demšar 2006)."""
    ordered = sorted(section.methods, key=lambda row: row.average_rank or 0.0)
    place = {row.name: row.average_rank or 0.0 for row in ordered}
    bars = [clique for clique in ranks.cliques if len(clique) > 1]
    half, k = (len(ordered) + 1) // 2, len(ordered)
    depth = 1.0 + 0.3 * len(bars)
    edges = (1 - 0.15 * k, k + 0.15 * k)
    top = axis(
        "average rank, 1 is best", side="top", range=edges, tickvals=list(range(1, k + 1)), showgrid=False,
        ticks="inside", showline=False,
    )  # fmt: skip
    figure = go.Figure(
        layout=layout(
            round(84 + 36 * (depth + half)),
            xaxis=top,
            yaxis=axis(visible=False, range=[-(depth + half - 0.6), 0.25]),
            margin={"l": 8, "r": 8, "t": 52, "b": 8},
        )
    )
    figure.add_scatter(
        x=[1, k], y=[0, 0], mode="lines", line={"color": GREY, "width": 2}, hoverinfo="skip", showlegend=False
    )
    for i, row in enumerate(ordered):
        best_half = i < half
        _branch(figure, row.name, place[row.name], edges[not best_half], -(depth + (i if best_half else k - 1 - i)), i)
    for j, clique in enumerate(bars):
        ends = [min(place[name] for name in clique) - 0.04, max(place[name] for name in clique) + 0.04]
        figure.add_scatter(
            x=ends, y=[-0.3 * (j + 1)] * 2, mode="lines", showlegend=False, line={"color": POLICY, "width": 6},
            text=[f"not told apart: {text(', '.join(clique), 200)}"] * 2, hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    return Figure("ranks", "Critical-difference diagram", _rank_words(ranks), figure)


def _branch(figure: go.Figure, name: str, rank: float, edge: float, y: float, number: int) -> None:
    """From a method's rank down and out to the edge, where its name stands on the line."""
    figure.add_scatter(
        x=[rank, rank, edge], y=[0, y, y], mode="lines+markers", showlegend=False,
        line={"color": SERIES[number % len(SERIES)], "width": 2}, marker={"size": [9, 0.1, 0.1]},
        text=[text(name)] * 3, hovertemplate=f"%{{text}}<br>average rank {rank:.3f}<extra></extra>",
    )  # fmt: skip
    figure.add_annotation(
        x=edge, y=y, text=f"{text(name, 20)} <b>{rank:.2f}</b>", showarrow=False, yanchor="bottom",
        xanchor="left" if edge < rank else "right",
    )  # fmt: skip


def _rank_words(ranks: RankTest) -> str:
    f = "∞" if ranks.iman_davenport is None else f"{ranks.iman_davenport:.3g}"
    differ = (
        f"A bar joins tables that Conover's test with Holm's correction does not tell apart at {100 * ranks.alpha:g} %."
        if ranks.significant
        else f"At {100 * ranks.alpha:g} % the tables cannot be told apart at all, so one bar joins them."
    )
    return (
        f"{differ} Friedman Q = {ranks.friedman:.3g} (p = {ranks.friedman_p:.2g}), Iman-Davenport F = {f}"
        f" (p = {ranks.iman_davenport_p:.2g}) over {len(ranks.blocks)} blocks (group × metric)."
    )
