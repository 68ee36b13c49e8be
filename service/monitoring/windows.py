"""Rates over the last minutes from a bounded list of past totals."""

from bisect import bisect_right
from typing import Any

WINDOWS = {"1m": 60.0, "10m": 600.0, "1h": 3600.0}
WHOLE = "policy"  # since the policy judges
_STEP = 5.0


class Windows:
    """Totals of accepted and decided items every few seconds of the longest window."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._totals: list[tuple[int, int]] = []

    def add(self, now: float, accepted: int, decided: int) -> None:
        """Note the totals, unless that was done moments ago; forget what no window reaches."""
        if self._times and now < self._times[-1]:  # the clock was set back: the past goes back with it
            back = self._times[-1] - now
            self._times = [time - back for time in self._times]
        if self._times and now - self._times[-1] < _STEP:
            return
        self._times.append(now)
        self._totals.append((accepted, decided))
        # The newest total that is older than the longest window must stay: that window starts there.
        outdated = bisect_right(self._times, now - max(WINDOWS.values())) - 1
        if outdated > 0:
            del self._times[:outdated], self._totals[:outdated]

    def rates(self, now: float, accepted: int, decided: int) -> dict[str, float | None]:
        """Acceptance rate of every window, None where it saw no decision."""
        found: dict[str, float | None] = {}
        for name, seconds in WINDOWS.items():
            then_accepted, then_decided = self._before(now - seconds)
            trials = decided - then_decided
            found[name] = (accepted - then_accepted) / trials if trials > 0 else None
        found[WHOLE] = accepted / decided if decided else None
        return found

    def _before(self, time: float) -> tuple[int, int]:
        index = bisect_right(self._times, time) - 1
        return self._totals[index] if index >= 0 else (0, 0)

    def state(self) -> dict[str, Any]:
        """As JSON."""
        return {"times": self._times, "totals": self._totals}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from JSON."""
        self._times = list(state["times"])
        self._totals = [(accepted, decided) for accepted, decided in state["totals"]]
