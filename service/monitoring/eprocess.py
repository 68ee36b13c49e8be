"""Anytime-valid evidence that a rate left its band, computed from counts alone.

An e-process is a wealth: under the null hypothesis its expectation never exceeds one at any stopping time, so the
chance that it *ever* reaches 1/α is at most α (Ville 1939; Ramdas et al., Game-Theoretic Statistics and Safe
Anytime-Valid Inference, 2023). Everything here is a function of counts, and counts add up: tallies of several workers
are summed and the wealth is looked at whenever convenient, without any loss of validity.

All tests are one-sided tests of "the rate of an event is at most `limit`". A lower limit on a rate is an upper limit
on the rate of the opposite event. Against a true rate below the limit the bets lose, so the null is the whole
interval below it, and the rate may even wander inside it.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

SMALLEST_LIMIT = 1e-6  # a limit of zero would make one event infinite evidence: test the slightly larger null
STRENGTHS = (1.0, 4.0)  # expected events of the priors around the limit: one broad, one narrow
STEPS = tuple(0.07 * 2.0**i for i in range(7))  # log-odds distances of the alternatives a restarting bet tries


def log_excess(events: ArrayLike, trials: ArrayLike, limit: float, strengths: Sequence[float] = STRENGTHS) -> Array:
    """Log wealth against "rate ≤ limit" after `events` in `trials`: a mixture of betas truncated to (limit, 1].

    With prior density ∝ θ^(a-1) (1-θ)^(b-1) on θ > p, the wealth ∫ (θ/p)^k ((1-θ)/(1-p))^(n-k) dπ(θ) has the closed
    form B(a+k, b+n-k) Q(a+k, b+n-k) / (B(a, b) Q(a, b) p^k (1-p)^(n-k)), Q the upper incomplete beta ratio at p
    (the mixture method of Robbins 1970, with the truncation that makes it one-sided).
    """
    from scipy.special import betaincc, betaln

    p = max(limit, SMALLEST_LIMIT)
    k, n = np.broadcast_arrays(np.asarray(events, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    if p >= 1.0 - SMALLEST_LIMIT:
        return np.zeros(k.shape)  # nothing contradicts "at most one"
    k, misses = k[..., None], (n - k)[..., None]
    concentration = np.asarray(strengths) / min(p, 1.0 - p)
    a, b = concentration * p, concentration * (1.0 - p)
    with np.errstate(divide="ignore"):  # far below the limit the tail underflows: no evidence, wealth zero
        tails = np.log(betaincc(a + k, b + misses, p)) - np.log(betaincc(a, b, p))
    likelihood = betaln(a + k, b + misses) - betaln(a, b) - k * math.log(p) - misses * math.log1p(-p)
    mixed: Array = np.logaddexp.reduce(likelihood + tails, axis=-1) - math.log(len(strengths))
    return mixed


def log_departure(events: ArrayLike, trials: ArrayLike, low: float, high: float) -> Array:
    """Log wealth against "low ≤ rate ≤ high": the average of the two one-sided wealths."""
    k, n = np.asarray(events, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    above, below = log_excess(k, n, high), log_excess(n - k, n, 1.0 - low)
    both: Array = np.logaddexp(above, below) - math.log(2.0)
    return both


class RestartingBets:
    """One wealth against several one-sided nulls that stays alert for a change at any later time.

    Half of the wealth is bet from the start; the rest is a reserve from which fresh bets are placed after every update,
    so that a change late in a long quiet run is not drowned by the quiet. This is the sum of e-processes over starting
    times of Shin, Ramdas & Rinaldo (E-detectors, 2022), with weights that add up to one instead of a fresh stake a
    step: the chance of *ever* reaching 1/α stays below α however long it runs, at the price of about
    log n + 2 log log n in the log wealth at n trials. Memory is one number for every null and alternative.

    >>> bets = RestartingBets([0.1])
    >>> bets.update([40], 100) > 0
    True
    """

    def __init__(self, limits: ArrayLike, *, horizon: float = 1000.0, steps: Sequence[float] = STEPS) -> None:
        limit = np.clip(np.atleast_1d(np.asarray(limits, dtype=np.float64)), SMALLEST_LIMIT, 1.0 - SMALLEST_LIMIT)
        odds = (np.log(limit) - np.log1p(-limit))[:, None] + np.asarray(steps)
        self.limits = limit
        self.horizon = horizon
        self._on_event = -np.logaddexp(0.0, -odds) - np.log(limit)[:, None]
        self._on_miss = -np.logaddexp(0.0, odds) - np.log1p(-limit)[:, None]
        self.restart()

    def restart(self) -> None:
        """Forget everything seen."""
        self.trials = 0
        self.log_reserve = math.log(0.5)
        self.log_wealth = np.full(self._on_event.shape, math.log(0.5 / self._on_event.size))

    @property
    def log_e(self) -> float:
        """The present log wealth, reserve included."""
        return float(np.logaddexp(np.logaddexp.reduce(self.log_wealth, axis=None), self.log_reserve))

    @property
    def strongest(self) -> int:
        """The null that the most wealth was won against."""
        return int(np.argmax(np.logaddexp.reduce(self.log_wealth, axis=1)))

    def update(self, events: ArrayLike, trials: int) -> float:
        """Settle all bets on the next `trials` outcomes, place fresh ones, and return the log wealth.

        Fewer than zero events take back what an outcome that was corrected later had earned.
        """
        k = np.asarray(events, dtype=np.float64)[:, None]
        self.log_wealth = self.log_wealth + k * self._on_event + (trials - k) * self._on_miss
        if trials > 0:
            self._place(trials)
        return self.log_e

    def _place(self, trials: int) -> None:
        """Move the share of the reserve that is due between two trial counts into fresh bets."""
        before, after = self._kept(self.trials), self._kept(self.trials + trials)
        due = self.log_reserve + math.log1p(-after / before) - math.log(self.log_wealth.size)
        self.log_wealth = np.logaddexp(self.log_wealth, due)
        self.log_reserve += math.log(after / before)
        self.trials += trials

    def _kept(self, trials: int) -> float:
        return 1.0 / (1.0 + math.log1p(trials / self.horizon))

    def state(self) -> dict[str, Any]:
        """Everything a later process needs to go on, as JSON."""
        wealth = self.log_wealth.tolist()
        limits = self.limits.tolist()
        return {"trials": self.trials, "log_reserve": self.log_reserve, "log_wealth": wealth, "limits": limits}

    def resume(self, state: dict[str, Any]) -> bool:
        """Go on from `state`; False when it belongs to other nulls, against which nothing was won yet."""
        wealth = np.asarray(state["log_wealth"], dtype=np.float64)
        if wealth.shape != self.log_wealth.shape or not np.all(np.isfinite(wealth)):
            return False
        if not np.allclose(state.get("limits", self.limits), self.limits, rtol=1e-9, atol=0.0):
            return False
        self.trials, self.log_reserve, self.log_wealth = int(state["trials"]), float(state["log_reserve"]), wealth
        return True
