"""The text that Prometheus scrapes: the counters of all workers added up, and what the leader published.

Counters and histograms come straight from the shared slots, so they are the same whichever worker answers, and a
worker or server that starts again goes on counting where the last one stopped. Every series exists from the start;
label values come from closed sets. A rate that is not defined yet is NaN, never a made-up zero.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from calibration.policy import REASONS
from service.gate import PolicyView
from service.monitoring.alarms import KINDS
from service.monitoring.layout import BATCHES, OTHER, SECONDS, Layout
from service.monitoring.reference import SCORES
from service.monitoring.windows import WHOLE, WINDOWS

Array = NDArray[np.float64]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SHADOW_CHANGES = ("accept", "reject")  # what the shadow policy would have made of it instead
RISK_BOUNDS = ("lower", "estimate", "upper", "promise")
NAN = float("nan")


def exposition(
    layout: Layout, slots: Iterable[Array], status: dict[str, Any] | None, view: PolicyView, bundle: str
) -> bytes:
    """Everything as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(layout, list(slots), status or {}, view, bundle))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(
        self, layout: Layout, slots: list[Array], status: dict[str, Any], view: PolicyView, bundle: str
    ) -> None:
        self._layout = layout
        self._sum = np.sum(slots, axis=0) if slots else np.zeros(layout.size)
        self._largest = np.max(slots, axis=0) if slots else np.zeros(layout.size)
        policy = view.policy
        number = None if policy is None else policy.number
        # Right after a switch the leader's last word is still about the policy before.
        self._monitors: dict[str, Any] = status.get("monitors", {}) if status.get("policy") == number else {}
        self._policy, self._bundle = None if policy is None else policy.name, bundle

    def _field(self, name: str) -> Array:
        part: Array = self._sum[self._layout.fields[name]]
        return part

    def _number(self, name: str) -> float:
        return float(self._field(name)[0])

    def collect(self) -> Iterator[Metric]:
        yield from self._decisions()
        yield from self._histograms()
        yield from self._acceptance()
        yield from self._risk()
        yield from self._evidence()
        yield from self._ledger()
        info = GaugeMetricFamily("airlock_policy_info", "The policy that judges.", labels=["policy", "bundle"])
        if self._policy is not None:
            info.add_metric([self._policy, self._bundle[:12]], 1.0)
        yield info
        yield GaugeMetricFamily(
            "airlock_requests_in_flight", "Requests admitted and not yet answered.", self._number("in_flight")
        )

    def _decisions(self) -> Iterator[Metric]:
        decisions = CounterMetricFamily(
            "airlock_decisions", "Decisions, and why an item was rejected.", labels=["decision", "reason"]
        )
        for reason, count in zip(REASONS, self._field("decisions").tolist(), strict=True):
            decisions.add_metric(["accept", "none"] if reason is None else ["reject", reason], count)
        yield decisions
        predictions = CounterMetricFamily(
            "airlock_predictions", "Decisions by predicted class.", labels=["class", "decision"]
        )
        named: dict[str, Array] = {}  # a class that is itself called `other` shares that series
        for name, pair in zip((*self._layout.classes, OTHER), self._field("predictions").reshape(-1, 2), strict=True):
            named[name] = named.get(name, 0.0) + pair
        for name, (rejected, accepted) in named.items():
            predictions.add_metric([name, "accept"], float(accepted))
            predictions.add_metric([name, "reject"], float(rejected))
        yield predictions
        changes = CounterMetricFamily(
            "airlock_shadow_changes", "Decisions that the shadow policy would have made otherwise.", labels=["change"]
        )
        for change, count in zip(SHADOW_CHANGES, self._field("shadow").tolist(), strict=True):
            changes.add_metric([f"to_{change}"], count)
        yield changes
        yield CounterMetricFamily(
            "airlock_near_threshold",
            "Decisions that would change if both thresholds moved a little.",
            self._number("near"),
        )
        yield CounterMetricFamily(
            "airlock_unobserved_decisions", "Decisions that monitoring was too slow to see.", self._number("missed")
        )

    def _histograms(self) -> Iterator[Metric]:
        scores = Metric("airlock_score", "Scores, in buckets of the calibration quantiles.", "histogram")
        for score in SCORES:
            ends = self._layout.buckets[score]
            _add_histogram(scores, {"score": score}, ends, self._field(score), self._number(f"{score}_sum"))
        yield scores
        for name, field, ends, text in (
            ("airlock_inference_seconds", "seconds", SECONDS, "Wall time of the graph run that answered a request."),
            ("airlock_batch_size", "batch", BATCHES, "Items in the graph run that answered a request."),
        ):
            histogram = Metric(name, text, "histogram")
            _add_histogram(histogram, {}, ends, self._field(field), self._number(f"{field}_sum"))
            yield histogram

    def _acceptance(self) -> Iterator[Metric]:
        known = self._monitors.get("acceptance") or {}
        rates = known.get("windows") or {}
        rate = GaugeMetricFamily(
            "airlock_acceptance_rate", "Share of accepted items; `policy`: since it judges.", labels=["window"]
        )
        for window in (*WINDOWS, WHOLE):
            rate.add_metric([window], _or_nan(rates.get(window)))
        yield rate
        expected = known.get("expected") or {}
        yield GaugeMetricFamily(
            "airlock_acceptance_rate_expected",
            "The acceptance rate that calibration, or the live baseline, leads to expect.",
            _or_nan(expected.get("rate")),
        )
        bounds = GaugeMetricFamily(
            "airlock_acceptance_rate_normal", "The acceptance rates that are normal.", labels=["bound"]
        )
        for bound in ("low", "high"):
            bounds.add_metric([bound], _or_nan(expected.get(bound)))
        yield bounds
        yield GaugeMetricFamily(
            "airlock_acceptance_evalue",
            "Evidence that the acceptance rate is not normal since the policy judges.",
            known.get("e_value", 1.0),
        )
        yield GaugeMetricFamily(
            "airlock_acceptance_evalue_recent",
            "The same, restarting: evidence of a change at any later time.",
            known.get("e_value_recent", 1.0),
        )

    def _risk(self) -> Iterator[Metric]:
        known = self._monitors.get("selective_risk") or {}
        promise = (known.get("promise") or {}).get("limit")
        values = (known.get("low", 0.0), known.get("rate"), known.get("high", 1.0), promise)
        risk = GaugeMetricFamily(
            "airlock_selective_risk", "Wrong share of accepted items, from audit labels.", labels=["bound"]
        )
        for bound, value in zip(RISK_BOUNDS, values, strict=True):
            risk.add_metric([bound], _or_nan(value))
        yield risk
        yield GaugeMetricFamily(
            "airlock_audit_labels", "Audit labels under the present policy.", float(known.get("trials") or 0)
        )
        yield GaugeMetricFamily(
            "airlock_selective_risk_evalue",
            "Evidence that the selective risk exceeds the promise.",
            known.get("e_value", 1.0),
        )

    def _evidence(self) -> Iterator[Metric]:
        known = self._monitors.get("scores") or {}
        evidence = GaugeMetricFamily(
            "airlock_score_evalue", "Evidence that a score's distribution has changed.", labels=["score"]
        )
        for score in SCORES:
            evidence.add_metric([score], (known.get(score) or {}).get("e_value", 1.0))
        yield evidence
        alarms = self._monitors.get("alarms") or {}
        alarm = GaugeMetricFamily("airlock_alarm", "Whether an alarm is raised.", labels=["kind"])
        for kind in KINDS:
            alarm.add_metric([kind], float((alarms.get(kind) or {}).get("raised", False)))
        yield alarm

    def _ledger(self) -> Iterator[Metric]:
        for name, text in (
            ("written", "Decisions written to the ledger."),
            ("dropped", "Decisions that the ledger's queue could not hold."),
            ("errors", "Failed attempts to write to the ledger."),
        ):
            yield CounterMetricFamily(f"airlock_ledger_{name}", text, self._number(f"ledger_{name}"))
        yield GaugeMetricFamily(
            "airlock_ledger_queue_depth", "Decisions that wait for the ledger.", self._number("ledger_queue")
        )
        lag = float(self._largest[self._layout.fields["ledger_lag"]][0])
        yield GaugeMetricFamily(
            "airlock_ledger_lag_seconds", "Age of the oldest decision that waits for the ledger.", lag
        )


def _add_histogram(metric: Metric, labels: dict[str, str], ends: Sequence[float], counts: Array, total: float) -> None:
    """Cumulative buckets, count and sum; the client library leaves the last two out where scores are negative."""
    cumulative = np.cumsum(counts).tolist()
    for end, count in zip((*ends, float("inf")), cumulative, strict=True):
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": _upper_end(end)}, count)
    metric.add_sample(f"{metric.name}_count", labels, cumulative[-1])
    metric.add_sample(f"{metric.name}_sum", labels, total)


def _upper_end(end: float) -> str:
    return "+Inf" if end == float("inf") else repr(end)


def _or_nan(value: float | None) -> float:
    return NAN if value is None else value
