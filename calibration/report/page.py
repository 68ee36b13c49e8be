"""The report as one HTML file that needs nothing else: data, figures, plotly and the page's own script inside."""

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from calibration.metrics import ds_f1
from calibration.report import metric_table
from calibration.report.analysis import Analysis
from calibration.report.document import ComparisonSection, ReportDocument, Share
from calibration.report.figures import Figure, comparison_figures, figures
from calibration.report.outcomes import kinds
from calibration.report.sampling import sample_of_kinds
from calibration.report.verdict import floored, percent
from calibration.table import ScoreTable

EMBEDDED_ROWS = 20_000
LABELS = {
    "accuracy": "accuracy\u00a0↑",
    "ds_f1": "DS-F1\u00a0↑",
    "f1_s_id": "F1 s_id\u00a0↑",
    "f1_s_ood": "F1 s_ood\u00a0↑",
    "ds_aurc": "DS-AURC\u00a0↓",
    "aurc_s_id": "AURC s_id\u00a0↓",
    "aurc_s_ood": "AURC s_ood\u00a0↓",
    "ood_auroc": "OOD AUROC\u00a0↑",
}


def render(analysis: Analysis) -> str:
    """The page."""
    document, table = analysis.document, analysis.judged.table
    drawn = {figure.key: figure for figure in figures(analysis)}
    if document.comparison is not None:
        drawn |= {figure.key: figure for figure in comparison_figures(document.comparison)}
    embedded = _embedded(table)
    parts = metric_table.columns(document.metrics)
    families = [(family, metric_table.filled(family, parts)) for family in metric_table.FAMILIES]
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters |= {"percent": _percent, "bounds": _bounds, "number": _number, "value": _value, "tau": _tau}
    return environment.from_string(_asset("page.html")).render(
        document=document,
        everything=document.decisions["all"],
        facts=_facts(document),
        figures=drawn,
        draw=lambda key: _place(drawn[key]) if key in drawn else "",
        metric_columns=list(parts),
        metric_families=[(family, rows) for family, rows in families if rows],
        embedded_note=_embedded_note(len(embedded), len(table), document.policy.per_class),
        labels=LABELS,
        best_of=_best_of,
        provenance=json.dumps(document.provenance, indent=2, ensure_ascii=False),
        css=Markup(_asset("page.css")),
        js=Markup(_asset("page.js")),
        data=Markup(_script_json(_data(analysis, embedded, drawn.values()))),
        plotly=_packed_plotly(),
    )


def _embedded(table: ScoreTable) -> ScoreTable:
    """The rows that the doors are counted on; those of a sample stand for all rows of their kind.

    A sample holds more than its share of a rare kind. Without weights an error among ten thousand would be
    shown as one among a few hundred.
    """
    rows = sample_of_kinds(table, EMBEDDED_ROWS)
    if len(rows) == len(table):
        return table
    part = table.take(rows)
    weight = part.weights.copy()
    for mask, whole in zip(kinds(part).values(), kinds(table).values(), strict=True):
        held = float(weight[mask].sum())
        if held > 0.0:
            weight[mask] *= float(table.weights[whole].sum()) / held
    return part.reweighted(weight)


def _percent(share: Share | float | None, digits: int = 3) -> str:
    value = share.value if isinstance(share, Share) else share
    return "–" if value is None else f"{percent(value, digits)} %"


def _facts(document: ReportDocument) -> list[tuple[str, str, str]]:
    """What a manager looks at first: label, figure, and what stands in small print below it."""
    row, budget = document.decisions["all"], document.prevalence
    facts = [
        ("wrong among accepted", _percent(row.risk), _interval(row.risk)),
        ("in-distribution accepted", _percent(row.coverage), _interval(row.coverage)),
        ("out-of-distribution let in", _percent(row.ood_acceptance), _interval(row.ood_acceptance)),
        ("F1", _value(row.f1), f"best pair here {_value(document.metrics['ds_f1']['value'])}"),
    ]
    if budget is not None and not budget.id_only:
        star = "none" if budget.pi_star is None else f"{floored(100 * budget.pi_star)} %"
        facts.append(("OOD budget π*", star, f"for a risk of {100 * budget.risk:.3g} %"))
    return facts


def _interval(share: Share) -> str:
    return f"95 %: {_bounds(share)} %" if share.low is not None else ""


def _bounds(share: Share) -> str:
    if share.low is None or share.high is None:
        return ""
    return f"{percent(share.low)} – {percent(share.high)}"


def _place(figure: Figure) -> Markup:
    """A figure's place on the page, with words for those who do not see it."""
    return Markup(
        '<figure><h3 id="title-{key}">{title}</h3><figcaption id="caption-{key}">{caption}</figcaption>'
        '<div class="plot" data-key="{key}" style="min-height:{height}px" role="group"'
        ' aria-labelledby="title-{key}" aria-describedby="caption-{key}"></div></figure>'
    ).format(key=figure.key, title=figure.title, caption=figure.caption, height=figure.figure.layout.height)


def _data(analysis: Analysis, table: ScoreTable, drawn: Iterable[Figure]) -> dict[str, Any]:
    policy, best = analysis.document.policy, ds_f1(table)
    known = bool(np.isfinite(best.tau_id))
    return {
        "figures": {figure.key: json.loads(figure.figure.to_json()) for figure in drawn},
        "table": {
            "s_id": _packed(table.s_id.astype("<f8")),
            "s_ood": _packed(table.s_ood.astype("<f8")),
            "kind": _packed(np.where(table.correct, 0, np.where(table.is_id, 1, 2)).astype(np.uint8)),
            "weight": None if table.weight is None else _packed(table.weight.astype("<f8")),
            "sampled": len(table) < len(analysis.judged.table),
        },
        "policy": {
            "tau_id": policy.tau_id,
            "tau_ood": policy.tau_ood,
            "scores": policy.scores,
            "bundle": policy.bundle,
        },
        "best": {"tau_id": best.tau_id if known else None, "tau_ood": best.tau_ood if known else None},
    }


def _embedded_note(shown: int, total: int, per_class: bool) -> str:
    note = "Move a threshold and see what the gate would do to these samples."
    if shown < total:
        note += f" This page holds a sample of {shown:,} of the {total:,} rows; counts are scaled up to all of them."
    if per_class:
        note += " The policy has thresholds of its own for some classes; here one pair applies to all."
    return note


def _tau(tau: float | None) -> str:
    return "open" if tau is None else f"{tau:.6g}"


def _number(value: float) -> str:
    return f"{value:,.7g}"


def _value(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _best_of(section: ComparisonSection, group: str, metric: str) -> float | None:
    known = [row.values[group][metric] for row in section.methods]
    values = [value for value in known if value is not None]
    if len(set(values)) < 2:  # a mark on every row would say nothing
        return None
    return max(values) if section.higher_is_better[metric] else min(values)


def _packed(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _script_json(document: Mapping[str, Any]) -> str:
    """JSON that can stand inside a script element: no name can close it."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _packed_plotly() -> str:
    """The plotting library, compressed: a browser unpacks it in a blink, and the file can be sent by mail."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()


def _asset(name: str) -> str:
    return resources.files("calibration.report").joinpath("assets", name).read_text("utf-8")
