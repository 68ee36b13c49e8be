"""`airlock report`: score tables and a policy become one page."""

import shlex
import sys
from pathlib import Path

import click

from service.commands.common import progress


@click.command()
@click.argument("tables", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    help="Policy file to judge; without it the best pair of thresholds of the table.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The HTML page to write.")
@click.option("--json", "document", type=click.Path(path_type=Path, dir_okay=False), help="The same as JSON.")
@click.option("--title", default="Selective classification report", show_default=True, help="Heading of the page.")
@click.option(
    "--bootstrap",
    type=click.IntRange(0),
    help="Resamples behind the intervals.  [default: as many as take a few seconds]",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the resamples and splits.")
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _param, value: _schema(ctx) if value else None,
    help="Print the JSON schema of --json and stop.",
)
def command(
    tables: tuple[Path, ...],
    policy: Path | None,
    out: Path | None,
    document: Path | None,
    title: str,
    bootstrap: int | None,
    seed: int,
) -> None:
    """Write the report of the first of TABLES as one self-contained HTML page; the others are compared with it.

    \b
    Examples:
      airlock report scores.parquet --policy my-bundle/policies/0001.json --out report.html
      airlock report knn.parquet vim.parquet energy.parquet --out report.html --json report.json
    """
    if not out and not document:
        raise click.UsageError("Name the page with --out, the JSON document with --json, or both.")
    from calibration.errors import StoreError
    from calibration.metrics import group_tables
    from calibration.policy import Policy
    from calibration.report import Request, affordable_resamples, analyse, read_tables, write_report

    for path in (out, document):
        if path and not path.absolute().parent.is_dir():
            raise StoreError(f"The folder {path.parent} does not exist; make it first or write elsewhere.")
    judged = Policy.read(policy) if policy else None
    named = read_tables(tables)
    subject = named[0].table
    resamples = affordable_resamples(subject) if bootstrap is None else bootstrap
    request = Request(
        tables=named,
        policy=judged,
        policy_source=policy.name if policy else "",
        title=title,
        bootstrap=resamples,
        seed=seed,
        command=shlex.join(["airlock", *sys.argv[1:]]),
    )
    with progress("resampling", resamples * (1 + len(group_tables(subject)))) as advance:
        analysis = analyse(request, advance)
    write_report(analysis, out, document)
    for sentence in analysis.document.verdict:
        click.echo(sentence)
    for path in (out, document):
        if path:
            click.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


def _schema(ctx: click.Context) -> None:
    import json

    from calibration.report.document import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    ctx.exit()
