"""The refusal of a metric that a table does not define."""

from calibration.errors import TableError


class Undefined(TableError):
    """The metric has no value on this table; the message is the reason."""
