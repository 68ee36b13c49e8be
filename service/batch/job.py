"""A batch job from start to end: open, agree with what an earlier run left, score, write, sum up."""

import hashlib
import json
import os
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from calibration.policy import Policy
from models.bundle import Bundle, file_sha256
from models.data import Source, absolute, open_source
from models.runtime import Scorer
from service.batch import formats
from service.batch.engine import Advance, Done, Work, score_parts
from service.batch.errors import JobError
from service.batch.interrupt import Interrupt, catching
from service.batch.options import Job
from service.batch.parts import ITEMS, SUMMARY, PartStore, Plan, write_atomic, write_json
from service.batch.probe import Sizes, choose, resumed
from service.batch.progress import progress
from service.batch.scoring import Judge
from service.batch.summary import Run, summarise, versions
from service.policies import find_policy, open_store

_SAID = {"input": "input, or its files have changed since", "rows": "number of rows", "ood": "choice of --ood"}
_MAX_CHUNK = 1 << 16  # the pipeline cuts the batches; the session must not cut them again


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the summary, and the signal that ended it early."""

    summary: dict[str, Any]
    files: list[Path]
    kind: str
    signum: int | None = None
    already: bool = False

    @property
    def complete(self) -> bool:
        return bool(self.summary["status"] == "complete")


def run(job: Job) -> Outcome:
    """Run a job, or the rest of it."""
    kind, single = formats.format_of(job.out, job.format)
    bundle = Bundle.open(job.bundle)
    policy = _policy(job, bundle)
    if single and not job.out.parent.is_dir():
        raise JobError(f"The folder {job.out.parent} does not exist; make it first or choose another --out.")
    folder = job.out.with_name(f"{job.out.name}.parts") if single else job.out
    with PartStore.open(folder) as store:
        return _Session(job, bundle, policy, kind, single, store).run()


def _policy(job: Job, bundle: Bundle) -> Policy | None:
    """The policy that judges: the one named, else the active one; without any only if that was asked for."""
    if job.no_policy:
        return None
    if job.policy is None and open_store(bundle, job.store).active() is None:
        raise JobError(
            f"{job.bundle} has no active policy, so nothing can be decided; make one with `airlock calibrate`, name "
            "one with --policy, or give --no-policy to write scores without decisions."
        )
    return find_policy(bundle, job.policy, job.store)


@dataclass(frozen=True)
class _Session:
    """One run of one job."""

    job: Job
    bundle: Bundle
    policy: Policy | None
    kind: str
    single: bool
    store: PartStore

    def run(self) -> Outcome:
        job, manifest = self.job, self.bundle.manifest
        data, folder = job.data, self.store.folder
        if job.engine == "ray":  # actors have a working directory of their own
            data, folder = "-" if data == "-" else absolute(data), folder.absolute()
        spec, classes = manifest.input, manifest.classes
        source = open_source(data, spec, classes=classes, columns=job.columns, spill=folder / ITEMS)
        if len(source) == 0:
            raise JobError(f"{job.data} holds no rows; there is nothing to score.")
        if job.evaluate and not (source.labelled or job.all_ood):
            raise JobError(
                f"{job.data} has no labels, so nothing can be evaluated; name them with --label, or give --ood."
            )
        self._spare(source)
        overrides = {"threads": 1, "max_batch": max(_MAX_CHUNK, job.wishes.batch or 0)}
        options = self.bundle.options(**overrides, **({"provider": job.provider} if job.provider else {}))
        scorer = self.bundle.scorer(options)
        identity = self._identity(source, scorer)
        finished = self._finished(identity)
        if finished is not None:
            return finished
        sizes = self._settle(source, scorer, identity)
        judge = Judge(manifest.classes, self.policy, job.group, job.all_ood)
        assert self.store.plan is not None
        return self._score(Work(source, judge, self.store.plan, sizes.flow), scorer)

    def _spare(self, source: Source) -> None:
        """Refuse to start over in the place of the very files that are read."""
        if not self.job.overwrite:
            return
        places = {os.path.realpath(place) for place in (self.job.out, self.store.folder)}
        for path in source.stored_in:
            real = os.path.realpath(path)
            if real in places or os.path.dirname(real) in places:
                raise JobError(f"{path} is both input and output; choose another --out.")

    def _identity(self, source: Source, scorer: Scorer) -> dict[str, Any]:
        """All that the content of the output depends on; a run goes on only where these agree."""
        found = versions()
        return {
            "bundle": self.bundle.hash,
            "policy": None if self.policy is None else hashlib.sha256(self.policy.to_json()).hexdigest(),
            "input": source.fingerprint(),
            "rows": len(source),
            "format": self.kind,
            "group": self.job.group,
            "ood": self.job.all_ood,
            "provider": scorer.provider,
            "onnxruntime": found["onnxruntime"],
            "pillow": found["pillow"],
        }

    def _finished(self, identity: dict[str, Any]) -> Outcome | None:
        """The outcome of an earlier run that did all of this job; what is in the way of it is refused."""
        if self.job.overwrite:
            return None
        if not self.single:
            if self.store.plan is None or self.store.pending():
                return None
            _agree(self.store.plan, identity, self.job)
            summary = _read_json(self.store.folder / SUMMARY)
            if summary is None or summary.get("status") != "complete":
                return None
            return Outcome(summary, self.store.paths(), self.kind, already=True)
        if not self.job.out.exists():
            return None
        summary = _read_json(summary_path(self.job.out)) or {}
        if summary.get("identity") != identity or summary["output"].get("sha256") != file_sha256(self.job.out):
            raise JobError(f"{self.job.out} exists and is no result of this job; give --overwrite to replace it.")
        self.store.remove()
        return Outcome(summary, [self.job.out], self.kind, already=True)

    def _settle(self, source: Source, scorer: Scorer, identity: dict[str, Any]) -> Sizes:
        """Take over the cut of the run before, or choose one."""
        wishes, plan = self.job.wishes, self.store.plan
        if plan is not None and not self.job.overwrite:
            _agree(plan, identity, self.job)
            return resumed(source, scorer, wishes, plan.batch, plan.part_rows)
        sizes = choose(source, scorer, wishes)
        if sizes.part_rows % sizes.flow.batch:
            raise JobError(f"--part-rows {sizes.part_rows} is no multiple of the batch size {sizes.flow.batch}.")
        self.store.begin(Plan(identity, self.kind, len(source), sizes.flow.batch, sizes.part_rows))
        return sizes

    def _score(self, work: Work, scorer: Scorer) -> Outcome:
        store, job = self.store, self.job
        before = sum(part.rows for part in store.parts.values())
        run = Run(datetime.now(UTC), resumed_parts=len(store.parts), resumed_rows=before)
        if before and not job.quiet:
            click.echo(f"airlock: going on after {before:,} of {work.plan.rows:,} rows", err=True)
        started = perf_counter()
        status = "complete"
        errors = sum(part.counts["errors"] for part in store.parts.values())
        with catching(self._say_stopping) as interrupt, progress(work.plan.rows, before, quiet=job.quiet) as advance:
            with closing(self._parts(work, scorer, advance, interrupt)) as parts:
                for done in parts:
                    write = partial(formats.write_table, done.table, kind=self.kind)
                    store.add(done.index, len(done.table), done.counts, write)
                    run.rows += len(done.table)
                    errors += done.counts["errors"]
                    if job.max_errors is not None and errors > job.max_errors:
                        status = "too_many_errors"
                        break
            if interrupt.requested() and store.pending():
                status = "interrupted"
        run.seconds = perf_counter() - started
        summary = summarise(job, self.bundle, self.policy, work.source, store, work.flow, run, status)
        return self._close(summary, interrupt.signum)

    def _parts(self, work: Work, scorer: Scorer, advance: Advance, interrupt: Interrupt) -> Generator[Done]:
        pending = self.store.pending()
        if self.job.engine == "local":
            return score_parts(work, scorer, pending, advance=advance, stopping=interrupt.requested)
        from service.batch.ray_engine import score_on_ray

        return score_on_ray(work, self.bundle, self.job, pending, advance=advance, stopping=interrupt.requested)

    def _close(self, summary: dict[str, Any], signum: int | None) -> Outcome:
        store = self.store
        (store.folder / ITEMS).unlink(missing_ok=True)
        if not self.single or summary["status"] != "complete":
            write_json(store.folder / SUMMARY, summary)
            return Outcome(summary, store.paths(), self.kind, signum)
        out = self.job.out
        size, digest = write_atomic(out, partial(formats.merge, store.paths(), kind=self.kind))
        summary["output"] |= {"bytes": size, "sha256": digest, "parts": []}
        write_json(summary_path(out), summary)
        store.remove()
        return Outcome(summary, [out], self.kind, signum)

    def _say_stopping(self) -> None:
        if not self.job.quiet:
            click.echo("airlock: stopping after the current part; once more stops at once", err=True)


def summary_path(out: Path) -> Path:
    """Where the summary of a one-file output lies."""
    return out.with_name(f"{out.name}.summary.json")


def _agree(plan: Plan, identity: dict[str, Any], job: Job) -> None:
    """Refuse to go on with a job that is not the same."""
    differs = [name for name, value in identity.items() if plan.identity.get(name) != value]
    if job.wishes.batch not in (None, plan.batch):
        differs.append("batch size")
    if job.wishes.part_rows not in (None, plan.part_rows):
        differs.append("part size")
    if differs:
        raise JobError(
            f"{job.out} was begun with another {_SAID.get(differs[0], differs[0])}; give --overwrite to start over or "
            "choose another --out."
        )


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document


__all__ = ["Outcome", "run", "summary_path"]
