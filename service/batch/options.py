"""What a batch job is asked to do."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from models.data import Columns
from service.batch.probe import Wishes

Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Job:
    """One `airlock score` call."""

    bundle: Path
    data: str
    out: Path
    format: str | None = None
    policy: str | None = None  # a number in the bundle's store or a file; None takes the active one
    no_policy: bool = False
    store: Path | None = None  # of policies, where it is not in the bundle
    columns: Columns = field(default_factory=Columns)
    group: str | None = None
    all_ood: bool = False
    wishes: Wishes = field(default_factory=Wishes)
    provider: Literal["auto", "cpu", "cuda"] | None = None
    max_errors: int | None = None
    overwrite: bool = False
    evaluate: bool = False  # the output is to be evaluated, so it needs labels
    quiet: bool = False
    engine: Engine = "local"
    address: str | None = None
