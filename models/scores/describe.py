"""What can be said of a score without fitting it: for `airlock scores`, manifests and documentation."""

from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from .base import Score, ScoreParams
from .catalogue import registry
from .wrappers import WRAPPERS, Wrapper

ORDER = ("logits", "features", "head", "fit", "labels")


def describe_scores() -> list[dict[str, Any]]:
    """Every registered score: needs, parameters, paper, cost."""
    return [_score(score) for score in registry().values()]


def describe_wrappers() -> list[dict[str, Any]]:
    """Every wrapper, likewise."""
    return [_common(wrapper) for wrapper in WRAPPERS.values()]


def _score(score: Score) -> dict[str, Any]:
    return {
        **_common(score),
        "cost": score.cost,
        "made_for": score.role,
        "formula": (score.__doc__ or "").strip().split("\n")[0],
        "projections": sorted(score.projections),
        "inexact": score.inexact,
    }


def _common(thing: Score | Wrapper) -> dict[str, Any]:
    return {
        "id": thing.id,
        "title": thing.title,
        "needs": [need for need in ORDER if need in thing.needs],
        "parameters": describe_params(thing.Params),
        "paper": thing.paper,
    }


def describe_params(model: type[ScoreParams]) -> list[dict[str, Any]]:
    """Name, default, allowed range, meaning and tuned values of each parameter."""
    schema = model.model_json_schema()["properties"] if model.model_fields else {}
    return [_param(name, field, schema[name]) for name, field in model.model_fields.items()]


def _param(name: str, field: FieldInfo, schema: dict[str, Any]) -> dict[str, Any]:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    return {
        "name": name,
        "default": None if field.default is PydanticUndefined else field.default,
        "allowed": _allowed(schema),
        "meaning": field.description,
        "tuned_over": extra.get("tune"),
        "tuned_as_share_of_features": bool(extra.get("of_features")),
    }


def _allowed(schema: dict[str, Any]) -> str:
    """The range of a parameter in words, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(_allowed(option) for option in schema["anyOf"])
    for key in ("enum", "const"):
        if key in schema:
            values = schema[key] if key == "enum" else [schema[key]]
            return " | ".join(str(value) for value in values)
    signs = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
    bounds = [f"{sign} {schema[key]:g}" for key, sign in signs if key in schema]
    kind = {"null": "none", "boolean": "true | false"}.get(schema["type"], schema["type"])
    return " ".join([kind, ", ".join(bounds)]).strip()
