"""Traffic for the echo bundle: scores as its calibration saw them, or drifted."""

import numpy as np
from support.echo import WIDTH

from calibration.policy import Policy
from service.monitoring.counts import Counts
from service.monitoring.layout import MAX_CUTS
from service.monitoring.reference import SCORES, score_cuts

CORRECT_SHARE, ID_SHARE = 0.93, 0.8
Traffic = dict[str, np.ndarray]


def draw_traffic(rng: np.random.Generator, n: int, *, id_share: float = ID_SHARE) -> Traffic:
    """Scores as calibration saw them; another ID share is the drift."""
    is_id = rng.random(n) < id_share
    correct = is_id & (rng.random(n) < CORRECT_SHARE)
    s_id, s_ood = rng.normal(0, 1, n) + 2.0 * correct, rng.normal(0, 1, n) + 2.5 * is_id
    return {"s_id": s_id, "s_ood": s_ood, "is_id": is_id, "correct": correct}


def instances(traffic: Traffic) -> list[list[float]]:
    """The same as inputs of the echo bundle; the predicted class is always 0."""
    x = np.zeros((len(traffic["s_id"]), WIDTH))
    x[:, 0], x[:, 1], x[:, 2] = traffic["s_id"], traffic["s_ood"], 1.0
    found: list[list[float]] = x.tolist()
    return found


def counts_of(policy: Policy, traffic: Traffic) -> Counts:
    """What the workers' counters would say of it."""
    accept = policy.decide(traffic["s_id"], traffic["s_ood"]).accept
    less, at_most = {}, {}
    for score in SCORES:
        at = np.full(MAX_CUTS, -np.inf)
        cuts = score_cuts(policy, score)[0]
        at[: len(cuts)] = cuts
        less[score] = (traffic[score][:, None] < at).sum(axis=0).astype(float)
        at_most[score] = (traffic[score][:, None] <= at).sum(axis=0).astype(float)
    return Counts(len(accept), int(accept.sum()), len(accept), less, at_most)
