"""What can go wrong between a score table and a policy.

CalibrationError
├── TableError         a score table has a wrong column, row or value
├── SelectionRefused   the data cannot support what was asked (impossible risk, too few samples)
├── PolicyError        a policy document is malformed or belongs to another bundle
└── StoreError         the policy store cannot do what was asked (unknown number, nothing to roll back to)
"""


class CalibrationError(ValueError):
    """Base of every refusal raised by `calibration`."""


class TableError(CalibrationError):
    """A score table is malformed."""


class SelectionRefused(CalibrationError):
    """The data do not support the thresholds that were asked for."""


class PolicyError(CalibrationError):
    """A policy document is malformed or belongs to another bundle."""


class StoreError(CalibrationError):
    """The policy store refuses an operation."""
