"""Score tables whose rows are Gaussian given their kind: correct ID, misclassified ID, near and far OOD."""

from collections.abc import Callable

import numpy as np
import pytest

from calibration.table import ScoreTable

MakeTable = Callable[..., ScoreTable]


def make_table(
    n: int = 3000,
    *,
    ood: float = 0.3,
    error: float = 0.06,
    seed: int = 0,
    step: float = 0.05,
    classes: int | None = None,
    broken: float = 0.0,
) -> ScoreTable:
    """A table with ties (scores rounded to `step`), groups, and a share of rows without finite scores."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(4, size=n, p=[(1 - ood) * (1 - error), (1 - ood) * error, ood / 2, ood / 2])
    s_id = np.array([3.0, 0.3, 0.6, 0.4])[kind] + rng.standard_normal(n)
    s_ood = np.array([2.6, 2.0, 0.6, -1.5])[kind] + rng.standard_normal(n)
    if step:
        s_id, s_ood = np.rint(s_id / step) * step, np.rint(s_ood / step) * step
    lost = rng.random(n) < broken
    s_id[lost] = rng.choice([np.nan, np.inf, -np.inf], size=int(lost.sum()))
    return ScoreTable.from_columns(
        s_id=s_id,
        s_ood=s_ood,
        is_id=kind < 2,
        correct=kind == 0,
        group=np.array(["id", "id", "near", "far"])[kind],
        id=[f"row-{i}" for i in range(n)],
        prediction=None if classes is None else rng.integers(0, classes, n),
    )


@pytest.fixture(scope="session")
def table() -> ScoreTable:
    """The table most tests use."""
    return make_table()


@pytest.fixture(scope="session")
def make() -> MakeTable:
    """A maker of tables, for tests that vary one thing."""
    return make_table
