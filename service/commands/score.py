"""`airlock score`: files in, score table out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.commands.common import emit_json

if TYPE_CHECKING:
    from service.batch import Job, Outcome


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("data")
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    required=True,
    help="A folder for parts, or one .parquet, .csv or .jsonl file.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "csv", "jsonl"]),
    help="Of the parts in a folder.  [default: parquet]",
)
@click.option("--policy", metavar="N|FILE", help="Number in the bundle's store, or a file.  [default: the active one]")
@click.option("--no-policy", is_flag=True, help="Write scores without decisions.")
@click.option(
    "--store", type=click.Path(path_type=Path, file_okay=False), help="The policy store, if not in the bundle."
)
@click.option("--column", help="Column or .npz member with the inputs.  [default: x, image, path, …]")
@click.option("--label", help="Column with the labels.  [default: label or y, if there]")
@click.option("--no-labels", is_flag=True, help="Leave labels alone.")
@click.option("--ood", is_flag=True, help="Every item is out of distribution, whatever its label.")
@click.option("--group", help="Group of every row.")
@click.option("--group-column", help="Column with the groups.  [default: group, if there]")
@click.option("--id-column", help="Column with the ids.  [default: id, the path, or the row number]")
@click.option(
    "--carry", metavar="NAMES", help="Other columns to keep, with commas between; 'none' keeps none.  [default: all]"
)
@click.option("--batch-size", type=click.IntRange(1), help="[default: found by a short probe]")
@click.option(
    "--part-rows",
    type=click.IntRange(1),
    help="Rows a part, a multiple of the batch size.  [default: about 20 s of work]",
)
@click.option(
    "--workers", type=click.IntRange(1), help="Inference threads, or Ray actors.  [default: one a core, one a GPU]"
)
@click.option("--max-memory", metavar="SIZE", help="Keep the process below this, as in 800MB or 2GiB.")
@click.option("--provider", type=click.Choice(["auto", "cpu", "cuda"]), help="[default: as the bundle says]")
@click.option("--max-errors", type=click.IntRange(0), help="Stop with code 1 when more items than this have an error.")
@click.option("--overwrite", is_flag=True, help="Start over instead of going on with an earlier run.")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option("--address", help="Ray cluster to join, as in auto or host:6379.  [default: a local Ray]")
@click.option("--evaluate", is_flag=True, help="Print the metrics of the table; needs labels.")
@click.option("--json", "as_json", is_flag=True, help="Print the run summary (and the metrics) as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no result text.")
def command(**given: Any) -> None:
    """Score DATA with BUNDLE and write one row an item.

    DATA is an .npy or .npz file, a Parquet or Arrow file or folder, a folder of images (sub-folders are classes), a
    .csv, .jsonl or .txt list of paths, a glob in quotes, a URL, or - for a list of paths on standard input.

    A run that was stopped goes on where it was when the same command is given again.

    \b
    Example:
      airlock score my-bundle photos/ --out scores.parquet
      airlock score my-bundle 's3://bucket/day=*/*.parquet' --out scores/ --max-errors 100
      find . -name '*.jpg' | airlock score my-bundle - --out scores.csv --no-policy

    Exit codes: 0 done, 1 refused or too many errors, 2 bad usage, 130 or 143 stopped by a signal.
    """
    from service.batch import run

    job = _job(given)
    outcome = run(job)
    metrics = _metrics(outcome) if given["evaluate"] and outcome.complete else None
    if given["as_json"]:
        emit_json(outcome.summary if metrics is None else outcome.summary | {"metrics": metrics})
    elif not job.quiet:
        _say(job, outcome)
        if metrics is not None:
            from service.commands.evaluate import metrics_text

            click.echo(f"\n{metrics_text(job.out.name, metrics)}")
    _exit(job, outcome)


def _job(given: dict[str, Any]) -> "Job":
    from models.data import Columns
    from service.batch import Job, Wishes
    from service.batch.memory import parse_size

    for one, other in (
        ("policy", "no_policy"),
        ("label", "no_labels"),
        ("ood", "no_labels"),
        ("group", "group_column"),
    ):
        if given[one] and given[other]:
            names = [f"--{name.replace('_', '-')}" for name in (one, other)]
            raise click.UsageError(f"{names[0]} and {names[1]} exclude each other.")
    if given["address"] and given["engine"] != "ray":
        raise click.UsageError("--address needs --engine ray.")
    carry = given["carry"]
    kept = None if carry is None else () if carry == "none" else tuple(name.strip() for name in carry.split(","))
    return Job(
        bundle=given["bundle"],
        data=given["data"],
        out=given["out"],
        format=given["kind"],
        policy=given["policy"],
        no_policy=given["no_policy"],
        store=given["store"],
        columns=Columns(
            input=given["column"],
            label=given["label"],
            group=given["group_column"],
            id=given["id_column"],
            carry=kept,
            labels=not given["no_labels"],
        ),
        group=given["group"],
        all_ood=given["ood"],
        wishes=Wishes(
            batch=given["batch_size"],
            part_rows=given["part_rows"],
            workers=given["workers"],
            max_memory=None if given["max_memory"] is None else parse_size(given["max_memory"]),
        ),
        provider=given["provider"],
        max_errors=given["max_errors"],
        overwrite=given["overwrite"],
        evaluate=given["evaluate"],
        quiet=given["quiet"] or given["as_json"],
        engine=given["engine"],
        address=given["address"],
    )


def _say(job: "Job", outcome: "Outcome") -> None:
    from service.batch.report import lines

    for line in lines(job, outcome):
        click.echo(line)


def _metrics(outcome: "Outcome") -> dict[str, Any]:
    from service.batch.report import evaluate_output

    return evaluate_output(outcome)


def _exit(job: "Job", outcome: "Outcome") -> None:
    """A run that did not end has a code of its own and says how to go on."""
    if outcome.complete:
        return
    done, rows = outcome.summary["counts"].get("rows", 0), outcome.summary["input"]["rows"]
    kept = f"{done:,} of {rows:,} rows are kept in {outcome.files[0].parent if outcome.files else job.out}"
    if outcome.summary["status"] == "too_many_errors":
        samples = outcome.summary["counts"]["error_samples"]
        click.echo(
            f"airlock: {outcome.summary['counts']['errors']:,} items have an error, more than --max-errors "
            f"{job.max_errors} (first: {samples[0]['id']}: {samples[0]['error']}) {kept}; raise --max-errors to go on.",
            err=True,
        )
        sys.exit(1)
    click.echo(f"airlock: stopped; {kept}. Give the same command again to go on.", err=True)
    sys.exit(128 + (outcome.signum or 2))
