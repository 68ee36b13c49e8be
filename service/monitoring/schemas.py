"""What the routes of monitoring take and give."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, field_validator, model_validator


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Feedback(_Document):
    """The truth about one decision: its class, by number or name, or that the input was out of distribution."""

    id: str | None = Field(None, min_length=1, max_length=256, description="the item's id, as in the answer")
    request_id: str | None = Field(None, min_length=1, max_length=128, description="or the request's")
    item: StrictInt | None = Field(None, ge=0, lt=2**31, description="with request_id: which of its items, from 0")
    label: StrictInt | str | None = Field(None, description="the true class: its number or its name")
    is_ood: StrictBool | None = Field(None, description="true: the input belongs to no class")
    replace: StrictBool = Field(False, description="correct a label given before")

    @field_validator("item", "label", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        # JSON has one kind of number, so 7.0 is the integer 7.
        return int(value) if isinstance(value, float) and value.is_integer() else value

    @model_validator(mode="after")
    def _one_of_each(self) -> "Feedback":
        if (self.id is None) == (self.request_id is None):
            raise ValueError("name the decision by either id or request_id")
        if self.item is not None and self.request_id is None:
            raise ValueError("the number of an item goes with request_id only")
        if (self.label is None) == (self.is_ood is not True):
            raise ValueError("say either label or is_ood: true")
        return self


class FeedbackResult(_Document):
    """What became of it; `wrong` says whether the prediction was."""

    status: Literal["recorded", "unchanged", "replaced"]
    request_id: str
    item: int
    prediction: int
    decision: Literal["accept", "reject"]
    wrong: bool
    audit: bool = Field(description="whether it counts for the selective risk: only items that the audit drew do")


class ReviewItem(_Document):
    """A decision that should be labelled."""

    id: str
    request_id: str
    item: int
    why: Literal["audit", "near"]
    time: datetime
    label: int
    class_: str | None = Field(alias="class")
    s_id: float | None
    s_ood: float | None
    decision: Literal["accept", "reject"]
    reason: str | None
    policy: int
    propensity: float
    margin: float | None


class Review(_Document):
    """Items to label, and where to go on; a null cursor is the end for now."""

    items: list[ReviewItem]
    cursor: str | None


class RaisedAlarm(_Document):
    """An alarm that is up, since when and why; `confirmed` is the last time that new evidence came."""

    kind: str
    since: datetime
    confirmed: datetime
    cleared: datetime | None = None
    times: int
    evidence: dict[str, Any]


class Status(BaseModel):
    """What an operator wants to know, in one document."""

    model_config = ConfigDict(extra="allow")

    bundle: dict[str, Any]
    policy: dict[str, Any] | None
    alarms: list[RaisedAlarm]
    monitors: dict[str, Any] | None
    ledger: dict[str, Any]


class Cleared(_Document):
    """The alarm will be lowered and its monitor starts over."""

    kind: str
    status: Literal["clearing"]
