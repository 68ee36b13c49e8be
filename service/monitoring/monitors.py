"""The monitors: each turns counts into a wealth and raises one kind of alarm when the wealth reaches its mark."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.monitoring.alarms import Alarm
from service.monitoring.confidence import confidence_sequence
from service.monitoring.eprocess import RestartingBets, log_departure, log_excess
from service.monitoring.reference import Band, CutBands, Promise

Array = NDArray[np.float64]
LARGEST = 1e300  # what an overwhelming e-value is reported as; JSON has no infinity
RECENT_TRIALS = 300.0
QUIET_FACTOR, QUIET_LEAST, QUIET_MOST = 4, 2_000, 50_000
LABEL_HORIZON = 100.0  # labels are scarce: the reserve is placed sooner than for decisions


def e_value(log_e: float) -> float:
    """exp, kept finite."""
    return min(math.exp(min(log_e, 700.0)), LARGEST)


class RecentShares:
    """Shares of events among about the last few hundred trials, by exponential forgetting."""

    def __init__(self, size: int) -> None:
        self.events, self.trials = np.zeros(size), 0.0

    def update(self, events: ArrayLike, trials: int) -> None:
        """Forget a little, take in the new."""
        keep = math.exp(-trials / RECENT_TRIALS)
        self.events, self.trials = self.events * keep + np.asarray(events), self.trials * keep + trials

    def share(self, index: int) -> float | None:
        """Of one kind of event."""
        return float(self.events[index] / self.trials) if self.trials else None

    def state(self) -> list[Any]:
        """As JSON."""
        return [self.events.tolist(), self.trials]

    def resume(self, state: list[Any]) -> None:
        """Go on from JSON."""
        self.events, self.trials = np.array(state[0]), state[1]


class AcceptanceMonitor:
    """The acceptance rate since the start against its band, two-sided; once raised, it stays."""

    def __init__(self, band: Band, alpha: float) -> None:
        self.band, self.alpha = band, alpha
        self.accepted = self.decided = 0
        self.log_e = 0.0
        self.alarm = Alarm("acceptance")

    def update(self, accepted: int, decided: int, now: float) -> None:
        """Take in further decisions."""
        self.accepted, self.decided = self.accepted + accepted, self.decided + decided
        self.log_e = self._evidence()
        if self.log_e >= -math.log(self.alpha) and not self.alarm.raised:
            self.alarm.strike(now, rate_evidence(self.log_e, self.accepted / self.decided, self.decided, self.band))

    def clear(self, now: float) -> None:
        """Start over."""
        self.accepted = self.decided = 0
        self.log_e = 0.0
        self.alarm.clear(now)

    def state(self) -> dict[str, Any]:
        """As JSON."""
        band = [self.band.low, self.band.high]
        return {"accepted": self.accepted, "decided": self.decided, "band": band, "alarm": self.alarm.document()}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from JSON; an alarm about a band that the operator has changed since is not taken over."""
        self.accepted, self.decided = state["accepted"], state["decided"]
        self.log_e = self._evidence()
        band = [self.band.low, self.band.high]
        if np.allclose(state.get("band", band), band, rtol=1e-9, atol=0.0):
            self.alarm = Alarm(**state["alarm"])

    def _evidence(self) -> float:
        return float(log_departure(self.accepted, self.decided, self.band.low, self.band.high))


class _Restarting:
    """What monitors with restarting bets have in common: they bet, remember the recent past and pass."""

    def __init__(self, kind: str, bets: RestartingBets, shares: int, alpha: float, clear_seconds: float) -> None:
        self.bets, self.recent, self.alarm = bets, RecentShares(shares), Alarm(kind)
        self.alpha, self.clear_seconds = alpha, clear_seconds

    @property
    def log_e(self) -> float:
        """The present log wealth."""
        return self.bets.log_e

    def clear(self, now: float) -> None:
        """Start over."""
        self.bets.restart()
        self.alarm.clear(now)

    def state(self) -> dict[str, Any]:
        """As JSON."""
        return {"bets": self.bets.state(), "recent": self.recent.state(), "alarm": self.alarm.document()}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from JSON."""
        if self.bets.resume(state["bets"]):
            self.recent.resume(state["recent"])
            self.alarm = Alarm(**state["alarm"])


class RecentMonitor(_Restarting):
    """The same rate with restarting bets: alert for a change at any time, cleared when the change has passed."""

    def __init__(self, band: Band, alpha: float, clear_seconds: float) -> None:
        bets = RestartingBets([band.high, 1.0 - band.low])
        super().__init__("acceptance_recent", bets, 1, alpha, clear_seconds)
        self.band = band

    def update(self, accepted: int, decided: int, now: float) -> None:
        """Take in further decisions."""
        self.recent.update([accepted], decided)
        log_e = self.bets.update([accepted, decided - accepted], decided)
        if log_e >= -math.log(self.alpha):
            evidence = rate_evidence(log_e, self.recent.share(0), self.bets.trials, self.band)
            # The rate over recent decisions lags behind; the bets that won know the side.
            evidence["direction"] = ("above", "below")[self.bets.strongest]
            strike_and_restart(self.alarm, self.bets, now, evidence)
        clear_if_quiet(self.alarm, self.bets, now, self.clear_seconds)


class ScoreMonitor(_Restarting):
    """The distribution of a score against calibration, at every calibration quantile at once.

    By the probability integral transform, the share of scores below a calibration quantile is known whatever the
    score is; a shift of the distribution moves at least one of these shares. Each cut is bet on from both sides with
    the testing-by-betting construction of Waudby-Smith & Ramdas (Estimating means of bounded random variables by
    betting, 2023), and the wealths are averaged, as conformal test martingales average betting functions (Vovk,
    Testing randomness online, 2021).
    """

    def __init__(self, score: str, cuts: CutBands, alpha: float, clear_seconds: float) -> None:
        bets = RestartingBets(np.concatenate([cuts.high, 1.0 - cuts.low]))
        super().__init__(f"score_{score}", bets, 2 * len(cuts.at), alpha, clear_seconds)
        self.score, self.cuts = score, cuts

    def update(self, less: Array, at_most: Array, scored: int, now: float) -> None:
        """Take in counts of further scores below, and at most at, every cut."""
        self.recent.update(np.concatenate([less, at_most]), scored)
        log_e = self.bets.update(np.concatenate([less, scored - at_most]), scored)
        if log_e >= -math.log(self.alpha):
            strike_and_restart(self.alarm, self.bets, now, self._evidence(log_e))
        clear_if_quiet(self.alarm, self.bets, now, self.clear_seconds)

    def _evidence(self, log_e: float) -> dict[str, Any]:
        """At which cut the evidence is strongest, and the share of recent scores below it."""
        strongest = self.bets.strongest
        risen, cut = divmod(strongest, len(self.cuts.at))
        return {
            "e_value": e_value(log_e),
            "decisions": self.bets.trials,
            "cut": float(self.cuts.at[cut]),
            "share_below": self.recent.share(strongest),
            "expected": [float(self.cuts.low[cut]), float(self.cuts.high[cut])],
            "direction": "higher scores" if risen else "lower scores",
        }


class RiskMonitor:
    """Wrong answers among audited, accepted, labelled items against the promise, one-sided.

    Half of the wealth watches the whole life of the policy, half restarts, so a late rise is found too.
    """

    def __init__(self, promise: Promise, alpha: float) -> None:
        self.promise, self.alpha = promise, alpha
        self.bets = RestartingBets([promise.limit], horizon=LABEL_HORIZON)
        self.labelled = self.wrong = 0  # as last heard of
        self.start = (0, 0)  # what of it was before this monitor was cleared
        self.alarm = Alarm("selective_risk")

    @property
    def counted(self) -> tuple[int, int]:
        """(labelled, wrong) since the start."""
        return self.labelled - self.start[0], self.wrong - self.start[1]

    @property
    def log_e(self) -> float:
        """The present log wealth."""
        labelled, wrong = self.counted
        whole = float(log_excess(wrong, labelled, self.promise.limit))
        return float(np.logaddexp(whole, self.bets.log_e)) - math.log(2.0)

    def hear(self, labelled: int, wrong: int, now: float) -> None:
        """Take in the totals of the ledger; a corrected label takes its evidence back."""
        if labelled < self.labelled:  # another ledger
            self.bets.restart()
            self.labelled = self.wrong = 0
            self.start = (0, 0)
        self.bets.update([wrong - self.wrong], labelled - self.labelled)
        self.labelled, self.wrong = labelled, wrong
        if self.log_e >= -math.log(self.alpha) and not self.alarm.raised:
            counted, errors = self.counted
            limit = Band(self.promise.limit, 0.0, self.promise.limit, self.promise.source)
            self.alarm.strike(now, rate_evidence(self.log_e, errors / counted, counted, limit, unit="labels"))

    def clear(self, now: float) -> None:
        """Start over with the labels to come."""
        self.bets.restart()
        self.start = (self.labelled, self.wrong)
        self.alarm.clear(now)

    def state(self) -> dict[str, Any]:
        """As JSON."""
        heard = [self.labelled, self.wrong]
        return {"bets": self.bets.state(), "heard": heard, "start": list(self.start), "alarm": self.alarm.document()}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from JSON."""
        if self.bets.resume(state["bets"]):
            self.labelled, self.wrong = state["heard"]
            self.start = (state["start"][0], state["start"][1])
            self.alarm = Alarm(**state["alarm"])


def rate_evidence(log_e: float, rate: float | None, trials: int, band: Band, unit: str = "decisions") -> dict[str, Any]:
    """What an alarm about a rate is founded on."""
    direction = None if rate is None else "above" if rate > band.high else "below" if rate < band.low else "within"
    evidence = {"e_value": e_value(log_e), unit: trials, "rate": rate, "expected": [band.low, band.high]}
    return evidence | {"direction": direction}


def strike_and_restart(alarm: Alarm, bets: RestartingBets, now: float, evidence: dict[str, Any]) -> None:
    """Raise or confirm, then bet afresh: only new evidence keeps a passing alarm up."""
    quiet = min(max(QUIET_FACTOR * bets.trials, QUIET_LEAST), QUIET_MOST)
    alarm.strike(now, evidence, quiet)
    bets.restart()


def clear_if_quiet(alarm: Alarm, bets: RestartingBets, now: float, seconds: float) -> None:
    """Clear a passing alarm once both enough time and enough trials went by without new evidence."""
    if alarm.raised and alarm.confirmed is not None:
        quiet = now - alarm.confirmed >= seconds and bets.trials >= alarm.quiet_trials
        if quiet:
            alarm.clear(now)


def rate_document(events: int, trials: int, alpha: float) -> dict[str, Any]:
    """A rate with its confidence sequence."""
    interval = confidence_sequence(events, trials, alpha)
    return {"rate": interval.estimate, "low": interval.low, "high": interval.high, "events": events, "trials": trials}
