"""The two figures that tuning optimises, by ranks in O(n log n), ties counted half."""

import numpy as np

from .moments import Float


def auroc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Probability that a positive scores above a negative; NaN ranks below everything."""
    above = np.nan_to_num(positive, nan=-np.inf)
    below: Float = np.sort(np.nan_to_num(negative, nan=-np.inf))
    wins = np.searchsorted(below, above, side="left") + np.searchsorted(below, above, side="right")
    return float(np.mean(wins)) / (2.0 * len(below))


def augrc(score: np.ndarray, correct: np.ndarray) -> float:
    """Area under the generalised risk-coverage curve (Traub et al. 2024): accepted and wrong, over all rows.

    It is (1 − AUROC_f) · acc · (1 − acc) + (1 − acc)²/2, AUROC_f ranking correct above wrong rows.
    """
    accuracy = float(np.mean(correct))
    if accuracy in (0.0, 1.0):
        return (1 - accuracy) ** 2 / 2
    return (1 - auroc(score[correct], score[~correct])) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
