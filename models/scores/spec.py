"""How a score is named: `vim`, `vim:dim=64`, `energy+temperature`, `knn:k=20+project=class_pred:variance=0.9`.

    spec    = score [":" settings] { "+" wrapper ["=" value] [":" settings] }
    settings = name "=" value { "," name "=" value }

A wrapper's bare `=value` sets its main parameter. Values are numbers, true/false, none or words.
"""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from models.errors import ScoreError

MAIN_PARAMETER = {"temperature": "T", "project": "mode"}
_NAME = re.compile(r"[A-Za-z_]\w*")
_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None}


class WrapperSpec(BaseModel):
    """A transformation of the signals before a score reads them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    params: dict[str, Any] = Field(default_factory=dict)


class ScoreSpec(BaseModel):
    """A score, its parameters and its wrappers: what a manifest records and the command line writes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    params: dict[str, Any] = Field(default_factory=dict)
    wrappers: tuple[WrapperSpec, ...] = ()

    def __str__(self) -> str:
        return "+".join([self.id + _settings(self.params), *(w.id + _settings(w.params) for w in self.wrappers)])


def parse_spec(text: str) -> ScoreSpec:
    """Read a score from the command line's notation."""
    # A "+" opens a wrapper only before a name, so that 1e+3 stays a number.
    first, *rest = re.split(r"\+(?=[A-Za-z_])", text.strip())
    name, _, settings = first.partition(":")
    _check_name(name, text)
    return ScoreSpec(
        id=name, params=_read_settings(settings, text), wrappers=tuple(_wrapper(part, text) for part in rest)
    )


def _wrapper(part: str, text: str) -> WrapperSpec:
    head, _, settings = part.partition(":")
    name, equals, value = head.partition("=")
    _check_name(name, text)
    params = _read_settings(settings, text)
    if equals:
        params = {MAIN_PARAMETER.get(name, "value"): _read_value(value), **params}
    return WrapperSpec(id=name, params=params)


def _check_name(name: str, text: str) -> None:
    if not _NAME.fullmatch(name):
        raise ScoreError(f"{text!r} does not name a score; write for example vim, vim:dim=64 or energy+temperature.")


def _read_settings(settings: str, text: str) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for item in filter(None, settings.split(",")):
        name, equals, value = item.partition("=")
        if not equals or not _NAME.fullmatch(name.strip()):
            raise ScoreError(f"{item!r} in {text!r} is not a setting; write name=value, several with commas.")
        params[name.strip()] = _read_value(value)
    return params


def _read_value(text: str) -> Any:
    word = text.strip()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _settings(params: dict[str, Any]) -> str:
    if not params:
        return ""
    return ":" + ",".join(f"{name}={_write_value(value)}" for name, value in params.items())


def _write_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value!r}" if isinstance(value, float) else str(value)
