"""What `calibrate` and `recalibrate` share: their options, and how data arguments become a score table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from service.commands.common import progress

if TYPE_CHECKING:
    from calibration.calibrate import Calibration
    from calibration.select import Parameters
    from calibration.store import PolicyStore
    from calibration.table import ScoreTable
    from models.bundle import Bundle
    from models.runtime import Scorer

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
METHODS = ("dsf1", "sgr", "certified", "coverage", "tpr")
ROWS_AT_ONCE = 1024

_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)
_OPTIONS = (
    click.option("--id", "id_data", multiple=True, metavar="DATA", help="Labelled in-distribution data."),
    click.option("--ood", "ood_data", multiple=True, metavar="[GROUP=]DATA", help="Out-of-distribution data."),
    click.option("--table", multiple=True, type=click.Path(path_type=Path), help="Score tables (CSV, Parquet)."),
    click.option("--risk", type=_SHARE, help="Selective risk to hold.  [default: 0.05]"),
    click.option("--delta", type=_SHARE, help="Probability that a certificate is wrong.  [default: 0.05]"),
    click.option("--prevalence", type=click.FloatRange(0, 1, max_open=True), help="OOD share to calibrate for."),
    click.option("--min-coverage", type=_SHARE, help="ID share to keep; the target of coverage and tpr."),
    click.option("--split", metavar="A/B[/C]", help="Shares of the splits.  [default: 50/50, or 30/40/30 to certify]"),
    click.option("--seed", type=click.IntRange(0), help="Of the splits and intervals.  [default: 0]"),
    click.option("--per-class/--one-pair", default=None, help="Thresholds for each predicted class."),
    click.option("--store", type=click.Path(path_type=Path, file_okay=False), help="The store, if not BUNDLE's."),
    click.option("--force", is_flag=True, help="Activate even a rejected policy; the force is recorded."),
    click.option("--note", help="A remark to keep with the policy."),
    click.option("--json", "as_json", is_flag=True, help="Print the policy and what became of it as JSON."),
)


def calibration_options(function: Decorated) -> Decorated:
    """The options that both commands take."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True)
class Place:
    """Where policies of this run belong: a bundle, a bare store, or neither."""

    bundle: "Bundle | None"
    store: "PolicyStore | None"

    @classmethod
    def of(cls, bundle: Path | None, store: Path | None) -> "Place":
        """Open what was named; a bundle brings its own store."""
        from calibration.store import PolicyStore

        if bundle is None:
            return cls(None, None if store is None else PolicyStore(store))
        from models.bundle import Bundle
        from service.policies import open_store

        opened = Bundle.open(bundle)
        return cls(opened, open_store(opened, store))

    @property
    def scores(self) -> dict[str, str]:
        """Score ids by role, where a bundle says them."""
        if self.bundle is None:
            return {}
        return {role: str(spec.get("spec") or spec.get("id")) for role, spec in self.bundle.manifest.scores.items()}

    @property
    def hash(self) -> str | None:
        """The bundle that policies of this run are bound to."""
        return None if self.bundle is None else self.bundle.hash


@dataclass(frozen=True)
class Data:
    """A score table and the arguments it came from."""

    table: "ScoreTable"
    sources: tuple[str, ...]


def load_data(
    bundle: "Bundle | None", id_data: Sequence[str], ood_data: Sequence[str], tables: Sequence[Path], *, quiet: bool
) -> Data:
    """Read tables, score data with the bundle, and put everything into one table."""
    from calibration.table import ScoreTable

    if (id_data or ood_data) and bundle is None:
        raise click.UsageError("--id and --ood need a BUNDLE to score them with; without one, give --table.")
    if not (id_data or tables):
        raise click.UsageError("There is nothing to calibrate on: give --id (and --ood) with a BUNDLE, or --table.")
    _check_distinct([*map(str, tables), *id_data, *(_group_of(arg)[1] for arg in ood_data)])
    parts = [ScoreTable.read(path) for path in tables]
    sources = [str(path) for path in tables]
    if bundle is not None and (id_data or ood_data):
        parts += _scored(bundle, id_data, ood_data, quiet=quiet)
        sources += [*id_data, *ood_data]
    return Data(parts[0] if len(parts) == 1 else ScoreTable.concat(parts), tuple(sources))


def _check_distinct(paths: Sequence[str]) -> None:
    """Data that are given twice would be selected on and judged on at once."""
    seen: set[Path] = set()
    for path in paths:
        place = Path(path).resolve()
        if place in seen:
            raise click.UsageError(f"{path} is given twice: its samples would be in more than one split.")
        seen.add(place)


def run_calibration(
    data: Data, method: str, parameters: "Parameters", place: Place, *, note: str | None, quiet: bool
) -> "Calibration":
    """Calibrate under a progress bar."""
    from calibration.calibrate import STAGES, calibrate

    with progress("splitting, selecting, validating", STAGES, quiet=quiet) as advance:
        return calibrate(
            data.table,
            method,
            parameters,
            scores=place.scores,
            bundle=place.hash,
            sources=data.sources,
            note=note,
            advance=advance,
        )


def _scored(bundle: "Bundle", id_data: Sequence[str], ood_data: Sequence[str], *, quiet: bool) -> "list[ScoreTable]":
    from models.data import Columns, Source, open_source

    spec, classes = bundle.manifest.input, bundle.manifest.classes
    opened: list[tuple[str, str | None, Source]] = [
        (arg, None, open_source(arg, spec, classes=classes)) for arg in id_data
    ]
    for arg in ood_data:
        group, path = _group_of(arg)
        opened.append((arg, group, open_source(path, spec, columns=Columns(labels=False))))
    scorer = bundle.scorer()
    with progress("scoring", sum(len(source) for _, _, source in opened), quiet=quiet) as advance:
        tables = [_score(scorer, arg, group, source, advance) for arg, group, source in opened]
    return [_named(table, position) for position, table in enumerate(tables)]


def _named(table: "ScoreTable", position: int) -> "ScoreTable":
    """Ids that differ between data arguments, and do not depend on where the files lie."""
    import numpy as np

    from calibration.table import ScoreTable

    assert table.id is not None
    return ScoreTable(**(table.columns() | {"id": np.char.add(f"{position}:", table.id)}))


def _group_of(arg: str) -> tuple[str, str]:
    """`near=a.npz` names the group; a bare path is its own group, by its name without an ending."""
    name, equals, path = arg.partition("=")
    if equals and name and "/" not in name and not Path(arg).exists():
        return name, path
    return Path(arg.rstrip("/")).name.split(".")[0] or "ood", arg


def _score(scorer: "Scorer", arg: str, group: str | None, source: Any, advance: Callable[[int], None]) -> "ScoreTable":
    """Score one source; `group` None means labelled ID data (rows labelled −1 are OOD)."""
    import numpy as np

    from calibration.table import ScoreTable
    from models.errors import DataError

    if group is None and not source.labelled:
        raise DataError(f"{arg} has no labels; --id needs the true class of every item, or use --ood for OOD data.")
    columns: dict[str, list[Any]] = {name: [] for name in ("s_id", "s_ood", "prediction", "label", "group", "id")}
    for batch in source.batches(ROWS_AT_ONCE):
        _check_batch(arg, batch, labelled=group is None)
        label, s_id, s_ood = _scores_of(scorer, batch)
        columns["s_id"].append(s_id)
        columns["s_ood"].append(s_ood)
        columns["prediction"].append(label)
        columns["label"].append(batch.y if group is None else np.full(len(batch), -1))
        columns["group"].append(_groups(batch, group))
        columns["id"].append(np.array(batch.ids, dtype=str))
        advance(len(batch))
    if not columns["s_id"]:
        raise DataError(f"{arg} holds no item.")
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    return ScoreTable.from_columns(**joined, is_id=joined["label"] >= 0)


def _check_batch(arg: str, batch: Any, *, labelled: bool) -> None:
    from models.data import UNLABELLED
    from models.errors import DataError

    broken = {row: fault for row, fault in batch.faults.items() if fault.reason != "not_finite"}
    if broken:
        row, fault = min(broken.items())
        raise DataError(f"{arg}, item {batch.ids[row]}: {fault.message}")
    if labelled and (batch.y == UNLABELLED).any():
        raise DataError(f"{arg}, item {batch.ids[int((batch.y == UNLABELLED).argmax())]} has no label; --id needs one.")


def _scores_of(scorer: "Scorer", batch: Any) -> tuple[Any, Any, Any]:
    """Label and scores of every row; what is not finite has NaN scores, so that no threshold accepts it."""
    import numpy as np

    label = np.full(len(batch), -1, dtype=np.int64)
    s_id, s_ood = np.full(len(batch), np.nan), np.full(len(batch), np.nan)
    for items in batch.items:
        scored = scorer.score(items.x)
        label[items.positions] = scored.label
        s_id[items.positions] = np.where(scored.finite, scored.s_id, np.nan)
        s_ood[items.positions] = np.where(scored.finite, scored.s_ood, np.nan)
    return label, s_id, s_ood


def _groups(batch: Any, group: str | None) -> Any:
    """The group that was named; in labelled data the rows' own, else `id` and `ood`."""
    import numpy as np

    if group is not None:
        return np.full(len(batch), group)
    if batch.rows.group is not None:
        return np.array(batch.rows.group.to_pylist(), dtype=str)
    return np.where(batch.y >= 0, "id", "ood")
