"""The threshold as a type: a finite float64, or an open door.

An open door is -inf in Python, which every finite score passes, and null in JSON, which has no infinities. All
other values keep every bit on the way to disk and back.
"""

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

OPEN = -math.inf


def _from_json(value: Any) -> Any:
    return OPEN if value is None else value


def _check(value: float) -> float:
    if math.isnan(value) or value == math.inf:
        raise ValueError(f"a threshold is a finite number, or null for an open door; {value} arrived")
    return value


def _to_json(value: float) -> float | None:
    return None if value == OPEN else value


Threshold = Annotated[
    float,
    Field(allow_inf_nan=True),
    BeforeValidator(_from_json),
    AfterValidator(_check),
    PlainSerializer(_to_json, return_type=float | None, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "null"}]}),  # the validators know, pydantic does not
]
