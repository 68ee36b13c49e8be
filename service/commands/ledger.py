"""`airlock ledger`: look into, export and prune the recorded decisions."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.commands.common import emit_json, progress

if TYPE_CHECKING:
    from service.ledger import Database


@click.group("ledger")
def command() -> None:
    """Export, count or prune recorded decisions.

    LEDGER is the state directory of a server, a SQLite file, or a URL such as postgresql://user@host/db.

    \b
    Example:
      airlock ledger stats /var/lib/airlock
      airlock ledger export /var/lib/airlock --since 7d --out decisions.parquet
      airlock ledger prune /var/lib/airlock --older-than 30d
    """


@command.command("stats")
@click.argument("ledger")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stats(ledger: str, as_json: bool) -> None:
    """What the ledger holds, by bundle and policy.

    \b
    Example:
      airlock ledger stats /var/lib/airlock
    """
    from service.ledger.keeping import stats as collect

    with _opened(ledger) as database:
        document = collect(database)
    if as_json:
        emit_json(document)
        return
    click.echo(f"{document['ledger']}: {document['decisions']:,} decisions, {_size(document['bytes'])}")
    for entry in document["policies"]:
        click.echo(_policy_line(entry))


@command.command("export")
@click.argument("ledger")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A .jsonl, .csv or .parquet file to write.")
@click.option("--since", help="Only decisions since a span back (7d, 12h) or a date.")
@click.option("--labelled", is_flag=True, help="A score table of audited, labelled decisions, weighted.")
@click.option("--bundle", help="With --labelled: only decisions of the bundle with this hash.")
@click.option("--inputs", is_flag=True, help="The inputs that were kept, as an .npz data argument (x, y, id).")
def export(ledger: str, out: Path, since: str | None, labelled: bool, bundle: str | None, inputs: bool) -> None:
    """Write decisions to a file: every one with its label, or a score table for `airlock calibrate --table`.

    \b
    Example:
      airlock ledger export /var/lib/airlock --since 7d --out decisions.jsonl
      airlock ledger export /var/lib/airlock --labelled --out table.parquet
      airlock ledger export /var/lib/airlock --inputs --out inputs.npz
    """
    from service.ledger import score_table
    from service.ledger.files import write_npz, write_rows
    from service.ledger.tables import export_rows, kept_inputs

    if bundle is not None and not labelled:
        raise click.UsageError("--bundle goes with --labelled")
    if inputs and (labelled or out.suffix != ".npz"):
        raise click.UsageError("--inputs goes with an --out that ends in .npz, and without --labelled")
    with _opened(ledger) as database:
        if inputs:
            arrays = kept_inputs(database, since)
            write_npz(out, arrays)
            written = len(arrays["y"])
        elif labelled:
            table = score_table(database, since, bundle)
            table.write(out)
            written = len(table)
        else:
            with progress("decisions", None) as advance:
                written = write_rows(out, export_rows(database, since), advance)
    click.echo(f"{written:,} decisions written to {out}")


@command.command("prune")
@click.argument("ledger")
@click.option("--older-than", default="30d", show_default=True, help="Age of unlabelled decisions to delete.")
@click.option("--labelled-older-than", default="365d", show_default=True, help="The same for labelled ones.")
@click.option("--max-rows", type=click.IntRange(min=0), help="Keep at most about this many unlabelled decisions.")
def prune(ledger: str, older_than: str, labelled_older_than: str, max_rows: int | None) -> None:
    """Delete old decisions; labelled ones are kept longer.

    \b
    Example:
      airlock ledger prune /var/lib/airlock --older-than 7d
    """
    from service.ledger.keeping import Limits
    from service.ledger.keeping import prune as delete

    limits = Limits(_days(older_than), _days(labelled_older_than), max_rows)
    with _opened(ledger) as database:
        deleted = delete(database, limits)
    click.echo(f"{deleted:,} decisions deleted")


@contextmanager
def _opened(ledger: str) -> "Iterator[Database]":
    from service.ledger import Database

    database = Database(ledger, create=False)
    try:
        yield database
    finally:
        database.close()


def _days(span: str) -> float:
    from service.ledger import LedgerError
    from service.ledger.tables import span_seconds

    seconds = span_seconds(span)
    if seconds is None:
        raise LedgerError(f"an age is a span such as 30d, 12h or 90m; {span!r} arrived")
    return seconds / 86400


def _policy_line(entry: dict[str, Any]) -> str:
    rejected = ", ".join(f"{reason} {count:,}" for reason, count in entry["rejected"].items()) or "none"
    audit, risk = entry["audit_labels"], ""
    if audit["labelled"]:
        risk = f", {audit['wrong']:,} of {audit['labelled']:,} audited accepts wrong"
    return (
        f"  bundle {entry['bundle'][:12]} policy {entry['policy']:04d}: {entry['decisions']:,} decisions from "
        f"{_day(entry['first'])} to {_day(entry['last'])}, {entry['accepted'] / entry['decisions']:.1%} accepted; "
        f"rejected: {rejected}; drawn for audit {entry['audit']:,}, labelled {entry['labelled']:,}{risk}"
    )


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
