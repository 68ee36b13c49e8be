"""Orientation on real data: higher means more trustworthy, for every registered score."""

import numpy as np
import pytest

from models.scores import fit_score, get_score, registry
from models.scores.alone import GraphScore
from models.scores.checks import assert_close
from models.scores.objectives import auroc


@pytest.mark.parametrize("id", list(registry()))
def test_higher_is_better(id, embedded):
    """The embedded outliers score below the embedded test images, and wrong labels below right ones."""
    fitted = fit_score(id, None, embedded.data())
    scores, correct = fitted.compute(embedded.id), embedded.correct
    against_outliers = auroc(scores, np.concatenate([fitted.compute(embedded.near), fitted.compute(embedded.far)]))
    against_errors = auroc(scores[correct], scores[~correct])
    role = get_score(id).role
    if role != "s_id":
        assert against_outliers > 0.6, f"outliers: AUROC {against_outliers:.3f}"
    if role != "s_ood":
        assert against_errors > 0.75, f"errors: AUROC {against_errors:.3f}"
    assert max(against_outliers, against_errors) > 0.6
    assert min(against_outliers, against_errors) > 0.45, "turned round for one of the doors"


@pytest.mark.parametrize("id", list(registry()))
def test_graph_equals_definition_on_real_rows(id, embedded):
    fitted = fit_score(id, None, embedded.data())
    for signals in (embedded.id, embedded.near, embedded.far):
        assert_close(GraphScore(fitted).compute(signals), fitted.compute(signals), fitted, id)
