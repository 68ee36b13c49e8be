"""All monitors of one policy: they take in counts, say what is wrong, and survive a restart as JSON."""

from typing import Any

import numpy as np

from calibration.policy import Policy
from service.monitoring.alarms import KINDS, Alarm
from service.monitoring.counts import Counts
from service.monitoring.layout import MAX_CUTS
from service.monitoring.monitors import (
    AcceptanceMonitor,
    RecentMonitor,
    RiskMonitor,
    ScoreMonitor,
    e_value,
    rate_document,
)
from service.monitoring.reference import (
    SCORES,
    SETTING,
    Band,
    CutBands,
    acceptance_band,
    cut_bands,
    live_band,
    live_cut_bands,
    promised_risk,
    score_cuts,
)
from service.monitoring.windows import Windows
from service.settings_monitoring import MonitoringSettings

Monitor = AcceptanceMonitor | RecentMonitor | RiskMonitor | ScoreMonitor


class Watch:
    """The monitors of one policy of one bundle.

    The bands come from the policy's evidence; where it has none that fits, from the first live decisions.
    Half of α pays for the error of an estimated band, half for the test.
    """

    def __init__(self, policy: Policy, settings: MonitoringSettings, now: float) -> None:
        self.policy, self.settings = policy, settings
        self.started = now
        self.counts = Counts.nothing()
        self.windows = Windows()
        self.monitors: dict[str, Monitor] = {}
        self._cuts = {score: score_cuts(policy, score)[0][:MAX_CUTS] for score in SCORES}
        self._add_calibrated()
        promise = promised_risk(policy, settings)
        if promise is not None:
            self.monitors["selective_risk"] = RiskMonitor(promise, settings.alpha)

    @property
    def _delta(self) -> float:
        return self.settings.alpha / 2

    def _add_calibrated(self) -> None:
        band = acceptance_band(self.policy, self.settings, self._delta)
        if band is not None:
            self._add_acceptance(band)
        for score in SCORES:
            cuts = cut_bands(self.policy, score, self.settings, self._delta)
            if cuts is not None:
                self._add_score(score, cuts)

    def _add_live(self) -> None:
        """What calibration could not tell is taken from the first decisions; they are not tested themselves."""
        counts, settings = self.counts, self.settings
        if counts.decided < settings.baseline_decisions:
            return
        if "acceptance" not in self.monitors:
            band = live_band(counts.accepted, counts.decided, self._delta)
            self._add_acceptance(band.widened(settings.tolerance))
        for score, at in self._cuts.items():
            if f"score_{score}" not in self.monitors and len(at) and counts.scored:
                less, at_most = (part[score][: len(at)] for part in (counts.less, counts.at_most))
                cuts = live_cut_bands(at, less, at_most, counts.scored, self._delta)
                self._add_score(score, cuts.widened(settings.tolerance))

    def _add_acceptance(self, band: Band) -> None:
        alpha = self.settings.alpha if band.source == SETTING else self.settings.alpha - self._delta
        self.monitors["acceptance"] = AcceptanceMonitor(band, alpha)
        self.monitors["acceptance_recent"] = RecentMonitor(band, alpha, self.settings.clear_seconds)

    def _add_score(self, score: str, cuts: CutBands) -> None:
        alpha = self.settings.alpha - self._delta
        self.monitors[f"score_{score}"] = ScoreMonitor(score, cuts, alpha, self.settings.clear_seconds)

    def take(self, fresh: Counts, now: float) -> None:
        """Take in further decisions."""
        if fresh.decided:
            for monitor in self.monitors.values():
                if isinstance(monitor, AcceptanceMonitor | RecentMonitor):
                    monitor.update(fresh.accepted, fresh.decided, now)
                elif isinstance(monitor, ScoreMonitor):
                    size = len(monitor.cuts.at)
                    less, at_most = (part[monitor.score][:size] for part in (fresh.less, fresh.at_most))
                    monitor.update(less, at_most, fresh.scored, now)
            self.counts += fresh
            self._add_live()
        self.windows.add(now, self.counts.accepted, self.counts.decided)

    def hear(self, labelled: int, wrong: int, now: float) -> None:
        """Take in the totals of the audit labels under this policy."""
        monitor = self.monitors.get("selective_risk")
        if isinstance(monitor, RiskMonitor):
            monitor.hear(labelled, wrong, now)

    def clear(self, kind: str, now: float) -> None:
        """An operator has seen the alarm: lower it and start its monitor over."""
        if kind in self.monitors:
            self.monitors[kind].clear(now)

    def alarm(self, kind: str) -> Alarm:
        """The alarm of a kind, never raised where nothing can be watched."""
        monitor = self.monitors.get(kind)
        return Alarm(kind) if monitor is None else monitor.alarm

    def log_e(self, kind: str) -> float:
        """The log wealth of a kind's monitor; zero (an e-value of one) where there is none."""
        monitor = self.monitors.get(kind)
        return 0.0 if monitor is None else monitor.log_e

    def status(self, now: float) -> dict[str, Any]:
        """Everything an operator or a scrape wants to know."""
        return {
            "started": self.started,
            "decisions": self.counts.decided,
            "acceptance": self._acceptance(now),
            "selective_risk": self._risk(),
            "scores": {score: self._score(score) for score in SCORES},
            "alarms": {kind: self.alarm(kind).document() for kind in KINDS},
        }

    def _acceptance(self, now: float) -> dict[str, Any]:
        alpha = self.settings.alpha
        document = {
            "since_start": rate_document(self.counts.accepted, self.counts.decided, alpha),
            "windows": self.windows.rates(now, self.counts.accepted, self.counts.decided),
            "expected": None,
            "e_value": e_value(self.log_e("acceptance")),
            "e_value_recent": e_value(self.log_e("acceptance_recent")),
            "alarm_at": None,
        }
        monitor = self.monitors.get("acceptance")
        if isinstance(monitor, AcceptanceMonitor):
            band = monitor.band
            document["expected"] = {"rate": band.expected, "low": band.low, "high": band.high, "source": band.source}
            document["alarm_at"] = 1.0 / monitor.alpha
        return document

    def _risk(self) -> dict[str, Any] | None:
        monitor = self.monitors.get("selective_risk")
        if not isinstance(monitor, RiskMonitor):
            return None
        labelled, wrong = monitor.counted
        return {
            **rate_document(wrong, labelled, self.settings.alpha),
            "promise": {"limit": monitor.promise.limit, "source": monitor.promise.source},
            "e_value": e_value(monitor.log_e),
            "alarm_at": 1.0 / monitor.alpha,
        }

    def _score(self, score: str) -> dict[str, Any]:
        monitor = self.monitors.get(f"score_{score}")
        if not isinstance(monitor, ScoreMonitor):
            waiting = len(self._cuts[score]) > 0
            needed = self.settings.baseline_decisions
            why = f"waiting for {needed} decisions" if waiting else "the policy has no calibration quantiles"
            return {"watched": False, "why": why}
        bounds = {"source": monitor.cuts.source, "alarm_at": 1.0 / monitor.alpha}
        return {"watched": True, "e_value": e_value(monitor.log_e), **bounds}

    def state(self) -> dict[str, Any]:
        """Everything a later process needs to go on."""
        return {
            "started": self.started,
            "counts": self.counts.document(),
            "windows": self.windows.state(),
            "bands": self._bands(),
            "monitors": {kind: monitor.state() for kind, monitor in self.monitors.items()},
        }

    def _bands(self) -> dict[str, Any]:
        """Bands that were taken from live decisions cannot be computed again: they are part of the state."""
        found: dict[str, Any] = {}
        acceptance = self.monitors.get("acceptance")
        if isinstance(acceptance, AcceptanceMonitor):
            band = acceptance.band
            found["acceptance"] = [band.expected, band.low, band.high, band.source]
        for score in SCORES:
            monitor = self.monitors.get(f"score_{score}")
            if isinstance(monitor, ScoreMonitor):
                cuts = monitor.cuts
                found[score] = [cuts.at.tolist(), cuts.low.tolist(), cuts.high.tolist(), cuts.source]
        return found

    def resume(self, state: dict[str, Any]) -> None:
        """Go on where an earlier process stopped."""
        self.started = state["started"]
        self.counts = Counts.from_document(state["counts"])
        self.windows.resume(state["windows"])
        for name, band in state["bands"].items():
            if name == "acceptance" and "acceptance" not in self.monitors:
                self._add_acceptance(Band(*band))
            elif name in SCORES and f"score_{name}" not in self.monitors:
                at, low, high, source = band
                self._add_score(name, CutBands(np.array(at), np.array(low), np.array(high), source))
        for kind, part in state["monitors"].items():
            if kind in self.monitors:
                self.monitors[kind].resume(part)
