"""Requests and responses as pydantic models: what administration routes parse and what OpenAPI describes.

The classification routes build the same documents directly: validating an answer of our own making would cost more
than a small model's inference. A test holds the two together.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Reason = Literal["low_id", "low_ood", "low_both", "not_finite"]
Decision = Literal["accept", "reject"]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class ProblemDocument(BaseModel):
    """A refusal (RFC 9457); `index` is the offending instance where one is to blame."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(pattern=r"^urn:airlock:problem:[a-z-]+$")
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    instance: str = Field(pattern=r"^urn:airlock:request:")
    index: int | None = Field(None, ge=0)


class ShadowVerdict(_Document):
    """What the shadow policy would have decided."""

    policy: int
    decision: Decision
    reason: Reason | None


class Prediction(_Document):
    """One instance: the decision to act on, and everything it was made from.

    A threshold is null where a door is open, a score is null where it is not finite. With `mode=strict` a rejected
    instance has no label, class or probabilities.
    """

    id: str
    decision: Decision
    reason: Reason | None
    label: int | None = None
    class_: str | None = Field(None, alias="class")
    s_id: float | None
    s_ood: float | None
    tau_id: float | None
    tau_ood: float | None
    probabilities: list[float | None] | None = None
    shadow: ShadowVerdict | None = None


class ClassifyResponse(_Document):
    """The answer to a native request, in the order of its instances."""

    request_id: str
    model: str = Field(description="name:version of the bundle")
    policy: int = Field(ge=1, description="the policy that judged every instance of this request")
    predictions: list[Prediction]


class PolicySummary(_Document):
    """A stored policy in short."""

    number: int
    status: str
    method: str
    tau_id: float | None
    tau_ood: float | None
    created_at: datetime
    active: bool
    shadow: bool


class PolicyList(_Document):
    """Every stored policy, oldest first."""

    active: int | None
    shadow: int | None
    policies: list[PolicySummary]


class Activation(_Document):
    """Options of an activation."""

    force: bool = Field(False, strict=True, description="activate a rejected policy; the force is recorded")
    note: str | None = Field(None, max_length=500, description="kept in the history")


class Note(_Document):
    """Options of a rollback."""

    note: str | None = Field(None, max_length=500, description="kept in the history")


class ShadowChoice(_Document):
    """The policy to judge in the shadow; null ends it."""

    number: Annotated[int, Field(ge=1, le=999_999_999)] | None

    @field_validator("number", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        # JSON has one kind of number, so 7.0 is the integer 7.
        return int(value) if isinstance(value, float) and value.is_integer() else value


class Switched(_Document):
    """The policies in force after a change."""

    active: int | None
    shadow: int | None


class V2Error(ProblemDocument):
    """A refusal on a protocol route: a problem document with the protocol's own `error` member."""

    error: str


class V2Server(_Document):
    """Who answers."""

    name: str
    version: str
    extensions: list[str]


class V2Tensor(_Document):
    """A tensor of the model; -1 stands for any size."""

    name: str
    datatype: str
    shape: list[int]


class V2Model(_Document):
    """The model's metadata."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[V2Tensor]
    outputs: list[V2Tensor]


class V2Output(_Document):
    """One answered tensor; `data` is absent where it was asked for in binary."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any] | None = None
    data: list[Any] | None = None


class V2InferResponse(_Document):
    """The answer to an inference request."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: dict[str, Any]
    outputs: list[V2Output]


class Health(_Document):
    """Whether the service answers; `reason` says why not."""

    live: bool | None = None
    ready: bool | None = None
    name: str | None = None
    reason: str | None = None
