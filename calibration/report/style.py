"""How the figures look: one palette that colour-blind readers can tell apart, one layout for light, dark and paper.

Text and grid colours are left to the page, which sets them for its theme.
"""

import html
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLUE, AMBER, PINK, GREEN, ORANGE = "#1F7FC1", "#E69F00", "#CC3D7F", "#009E73", "#D55E00"
SKY, VIOLET, GREY, OLIVE, TEAL = "#56B4E9", "#8C6BB1", "#8A8F98", "#A39200", "#17A2A2"
CORRECT, WRONG, OOD = BLUE, AMBER, PINK
DOUBLE, S_ID, S_OOD, POLICY = GREEN, BLUE, PINK, ORANGE
KINDS = {"correct": (CORRECT, "circle"), "misclassified": (WRONG, "diamond"), "out-of-distribution": (OOD, "x")}
OOD_GROUPS = (PINK, VIOLET, ORANGE, SKY, TEAL, OLIVE)
SERIES = (BLUE, AMBER, GREEN, PINK, SKY, ORANGE, VIOLET, GREY, OLIVE, TEAL)

_UNSEEN = 1e-4  # of the width of a figure: less than a tenth of a pixel
_LEGEND = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "itemsizing": "constant", "traceorder": "normal"}
_AXIS = {"automargin": True, "showline": True, "ticks": "outside", "ticklen": 4, "zeroline": False}


def layout(height: int = 420, **changes: Any) -> dict[str, Any]:
    """A layout with room for a legend on top; `xaxis` and `yaxis` are titles or settings."""
    for axis in ("xaxis", "yaxis"):
        given = changes.get(axis, {})
        changes[axis] = _AXIS | ({"title": {"text": given, "standoff": 10}} if isinstance(given, str) else given)
    base: dict[str, Any] = {
        "template": "none",
        "height": height,
        "margin": {"l": 56, "r": 20, "t": 16, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "legend": _LEGEND,
        "hoverlabel": {"align": "left"},
    }
    return base | changes


def axis(title: str = "", **changes: Any) -> dict[str, Any]:
    """Settings of a further axis, as those that `layout` makes."""
    return _AXIS | {"title": {"text": title, "standoff": 10}} | changes


def named_rows(names: list[str]) -> dict[str, Any]:
    """A vertical axis with one name a row from the top; places are numbers, so that two rows can share a name."""
    places = list(range(len(names)))
    return axis(
        tickmode="array", tickvals=places, ticktext=[text(name, 20) for name in names],
        range=[len(names) - 0.4, -0.6], ticks="", showline=False, ticklabelstandoff=8,
    )  # fmt: skip


def text(value: object, most: int = 80) -> str:
    """A name as plotly's labels take it: cut where it is long, escaped since they read a little HTML."""
    words = str(value)
    if len(words) > most:
        half = (most - 1) // 2
        words = f"{words[:half]}…{words[-half:]}"
    return html.escape(words, quote=False)


def thin(n: int, most: int = 1200) -> NDArray[np.intp]:
    """At most about `most` of n points, the last one always among them."""
    step = max(1, -(-n // most))
    return np.unique(np.append(np.arange(0, n, step), max(0, n - 1))) if n else np.arange(0)


def small(values: Any) -> NDArray[np.floating]:
    """Coordinates at the precision that a screen can show: in half the bytes, unless those would move a point."""
    exact = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        short = exact.astype(np.float32)
    known = np.isfinite(exact)
    if not known.any():
        return short
    spread, moved = np.ptp(exact[known]), np.abs(short[known] - exact[known]).max()
    return short if moved <= _UNSEEN * spread and np.isfinite(moved) else exact


def faded(colour: str, opacity: float) -> str:
    """A colour of the palette that lets what is behind it through."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
