"""What a run did, as one JSON document."""

import importlib.metadata
import platform
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from calibration.policy import Policy
from models.bundle import Bundle
from models.data import Source
from service.batch.memory import peak_rss
from service.batch.options import Job
from service.batch.parts import PartStore
from service.batch.pipeline import Flow
from service.batch.scoring import add_counts, most_common


@dataclass
class Run:
    """The course of one run of a job."""

    started_at: datetime
    seconds: float = 0.0
    rows: int = 0
    resumed_parts: int = 0
    resumed_rows: int = 0


def total_counts(store: PartStore) -> dict[str, Any]:
    """The counts of every finished part together, in the order of the rows."""
    counts: dict[str, Any] = {}
    for index in sorted(store.parts):
        counts = add_counts(counts, store.parts[index].counts)
    if "unknown_classes" in counts:
        counts["unknown_classes"] = most_common(counts["unknown_classes"])
    return counts


def summarise(
    job: Job, bundle: Bundle, policy: Policy | None, source: Source, store: PartStore, flow: Flow, run: Run, status: str
) -> dict[str, Any]:
    """The summary of a run; `status` is complete, interrupted or too_many_errors."""
    plan = store.plan
    assert plan is not None
    counts = total_counts(store)
    rows = counts.get("rows", 0)
    return {
        "status": status,
        "counts": counts,
        "acceptance": counts["accepted"] / rows if rows and policy is not None else None,
        "bundle": {"name": bundle.manifest.name, "version": bundle.manifest.version, "hash": bundle.hash},
        "policy": None if policy is None else {"name": policy.name, "sha256": plan.identity["policy"]},
        "input": {"argument": job.data, "rows": plan.rows, "labelled": source.labelled or job.all_ood},
        "output": {
            "path": str(job.out),
            "format": plan.kind,
            "parts": [
                {"file": part.file, "rows": part.rows, "bytes": part.bytes, "sha256": part.sha256}
                for _, part in sorted(store.parts.items())
            ],
        },
        "run": {
            "engine": job.engine,
            "started_at": run.started_at.isoformat(timespec="seconds"),
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(run.seconds, 3),
            "rows": run.rows,
            "rows_per_second": round(run.rows / run.seconds, 1) if run.seconds else None,
            "resumed_parts": run.resumed_parts,
            "resumed_rows": run.resumed_rows,
            "peak_rss_bytes": peak_rss(),
            "part_rows": plan.part_rows,
            **asdict(flow),
        },
        "versions": versions(ray=job.engine == "ray"),
        "identity": plan.identity,
    }


def versions(*, ray: bool = False) -> dict[str, str]:
    """The versions that a result depends on."""
    names = ["numpy", "onnxruntime", "pillow", "pyarrow", *(["ray"] if ray else [])]
    found = {"airlock": _version("airlock-gate"), "python": platform.python_version()}
    return found | {name: _version(name) for name in names}


def _version(name: str) -> str:
    if name == "onnxruntime" and "onnxruntime" in sys.modules:  # the package goes by several names
        return str(sys.modules["onnxruntime"].__version__)
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
