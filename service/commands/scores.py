"""`airlock scores`: the scoring functions and their parameters."""

from typing import Any

import click

from service.commands.common import emit_json


@click.command()
@click.argument("score", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(score: str | None, as_json: bool) -> None:
    """List the scoring functions; with SCORE, one of them in detail.

    \b
    Examples:
      airlock scores
      airlock scores vim
      airlock scores --json
    """
    from models.scores import get_score
    from models.scores.describe import describe_scores, describe_wrappers
    from models.scores.wrappers import WRAPPERS

    scores, wrappers = describe_scores(), describe_wrappers()
    if score is not None:
        id = score if score in WRAPPERS else get_score(score).id
        found = next(entry for entry in (*scores, *wrappers) if entry["id"] == id)
        if as_json:
            emit_json(found)
        else:
            _detail(found)
    elif as_json:
        emit_json({"scores": scores, "wrappers": wrappers})
    else:
        _list(scores, wrappers)


def _list(scores: list[dict[str, Any]], wrappers: list[dict[str, Any]]) -> None:
    for entry in scores:
        click.echo(f"{entry['id']}: {entry['title']} ({entry['paper'].split(',')[0]})")
        purpose = {"both": "s_id and s_ood"}.get(entry["made_for"], entry["made_for"])
        click.echo(f"    for {purpose}, cost {entry['cost']}, needs {', '.join(entry['needs'])}")
        _parameters(entry)
    click.echo("\nWrappers, put behind a score with a plus, as in energy+temperature or knn:k=20+project=class_pred:")
    for entry in wrappers:
        click.echo(f"+{entry['id']}: {entry['title']} ({entry['paper'].split(',')[0]})")
        click.echo(f"    needs {', '.join(entry['needs'])}")
        _parameters(entry)
    click.echo("\nHigher is better for every score. `airlock scores NAME` tells more about one.")


def _parameters(entry: dict[str, Any]) -> None:
    for p in entry["parameters"]:
        click.echo(f"    {p['name']} = {_value(p['default'])}  [{p['allowed']}]")


def _value(value: Any) -> str:
    return "auto" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _detail(entry: dict[str, Any]) -> None:
    click.echo(f"{entry['id']}: {entry['title']}")
    lines = {
        "formula": entry.get("formula"),
        "paper": entry["paper"],
        "made for": entry.get("made_for"),
        "cost": entry.get("cost"),
        "needs": ", ".join(entry["needs"]),
        "+project": ", ".join(entry.get("projections", ())),
        "in graph": entry.get("inexact") and f"ranking only, because {entry['inexact']}",
    }
    for label, text in lines.items():
        if text:
            click.echo(f"  {label:8}  {text}")
    for p in entry["parameters"]:
        click.echo(f"  {p['name']} = {_value(p['default'])}  [{p['allowed']}]")
        click.echo(f"      {p['meaning']}{_tuned(p)}")


def _tuned(param: dict[str, Any]) -> str:
    if not param["tuned_over"]:
        return ""
    values = ", ".join(_value(value) for value in param["tuned_over"])
    return f"; tuned over {values}{' of the features' if param['tuned_as_share_of_features'] else ''}"
