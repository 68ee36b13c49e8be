"""Defaults from the machine: how many workers and threads make sense here."""

import os
from contextlib import suppress
from pathlib import Path

from service.settings import Settings

MOST_WORKERS = 8


def cpus() -> int:
    """CPUs that this process may use: its affinity, and its container's quota where one is set."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            count = min(count, max(1, round(int(quota) / int(period))))
    return count


def resolved(settings: Settings, *, cuda: bool) -> Settings:
    """The settings with every "0 means automatic" of the machine replaced by a number.

    On a CPU one thread a worker wins: threads of ONNX Runtime spin while they wait, which takes from the workers
    what small batches never give back. A GPU is one device, so one worker keeps it busy with batches.
    """
    available = cpus()
    workers = settings.workers or (1 if cuda else min(available, MOST_WORKERS))
    threads = settings.threads or (max(1, available // workers) if cuda else 1)
    batching = settings.batching if settings.batching != "auto" else ("on" if cuda else "off")
    return settings.model_copy(update={"workers": workers, "threads": threads, "batching": batching})
