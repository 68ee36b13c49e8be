"""Watching the gate: shared counters, anytime-valid tests, alarms, and the metrics they feed."""
