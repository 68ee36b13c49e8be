"""How much memory there is, is used and may be used."""

import os
import re
import sys
from pathlib import Path

from service.batch.errors import JobError

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """'2GB', '512 MiB', '800m' → bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise JobError(f"{text!r} is no size; write it like 800MB, 2GB or 1.5GiB.")
    return int(float(match[1]) * _UNITS[(match[2] or "").lower()])


def say_size(size: float) -> str:
    """Bytes for people, in powers of 1000."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def rss() -> int:
    """Resident memory of this process now; its peak where the system does not tell the present."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return peak_rss()


def peak_rss() -> int:
    """The most resident memory this process ever had."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent had when it forked
        line = next((line for line in status.read_text().splitlines() if line.startswith("VmHWM")), None)
        if line is not None:
            return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # not a POSIX system
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def cores() -> int:
    """The cores this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
