"""When and how kernels are compiled.

Importing numba costs about half a second and a first compilation a few more, so small work stays in numpy and
`airlock evaluate` answers at once, on a fresh clone too. Compiled code is cached on disk where that is possible.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_NUMPY_WORK = 1.2e8
"""Rows times thresholds up to which numpy answers before numba is up; 10,000 rows stay below it in any mix."""

_repeats: ContextVar[int] = ContextVar("repeats", default=1)


@contextmanager
def repeated(times: int) -> Iterator[None]:
    """Within this block every kernel is expected to run that many times."""
    token = _repeats.set(max(1, times))
    try:
        yield
    finally:
        _repeats.reset(token)


def compiling_pays(work: float) -> bool:
    """Whether `work` elementary steps are enough to be worth the start of the compiler."""
    return work * _repeats.get() > _NUMPY_WORK


def compiled(kernel: Callable[..., Any]) -> Any:
    """Compile a kernel that releases the interpreter lock; without a writable cache it is compiled in memory."""
    import numba

    # numpy's error model: a test for division by zero in each step would keep loops from vectorising
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(kernel)
    except RuntimeError:  # numba found no directory it may write its cache to
        return numba.njit(nogil=True, error_model="numpy")(kernel)
