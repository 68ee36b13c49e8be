"""One typed settings object: flags over environment (`AIRLOCK_*`) over a TOML file over defaults.

An unknown key is refused wherever it stands, so that a typo never passes for a setting.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import to_json
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource
from pydantic_settings.exceptions import SettingsError as SourceError

from models.errors import ModelsError
from models.inputs import MAX_PIXELS
from service.settings_monitoring import MonitoringSettings

PREFIX = "AIRLOCK_"
CONFIG_VARIABLE = "AIRLOCK_CONFIG"
RESOLVED_VARIABLE = "AIRLOCK_RESOLVED"
_TOKEN = re.compile(r"[\x21-\x7e]{16,512}")


class SettingsError(ModelsError):
    """A setting is unknown, malformed or contradicts another."""


class Settings(BaseSettings):
    """Everything the service can be told. A limit that counts requests or bytes is meant per worker."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    bundle: Path | None = Field(None, description="the bundle directory; unset: the embedded default")
    policies: Path | None = Field(None, description="the policy store; unset: the bundle's own")
    state_dir: Path | None = Field(None, description="for what survives a restart; unset: nothing does")

    host: str = Field("127.0.0.1", description="the IP address to listen on")
    port: int = Field(3000, ge=0, le=65535)
    workers: int = Field(0, ge=0, le=256, description="processes; 0: one a CPU, at most 8, or one with CUDA")
    keep_alive_seconds: int = Field(75, ge=1, le=3600, description="idle connections are closed after this")

    provider: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int = Field(0, ge=0, le=256, description="ONNX Runtime threads a worker; 0: one on a CPU")
    max_batch: int = Field(0, ge=0, le=65536, description="items a graph run takes at most; 0: as the bundle says")
    batching: Literal["auto", "on", "off"] = Field("auto", description="run requests together; auto: with CUDA only")
    batch_wait_ms: float = Field(0.0, ge=0, le=1000, description="how long a batch waits for company")

    max_body_bytes: int = Field(32 * 1024 * 1024, ge=1024)
    max_instances: int = Field(1024, ge=1, le=1_000_000, description="instances a request may hold")
    max_pixels: int = Field(MAX_PIXELS, ge=1, description="pixels an encoded image may have")
    queue: int = Field(256, ge=1, description="requests admitted at once; more are answered 429")
    max_pending_bytes: int = Field(256 * 1024 * 1024, ge=1024, description="body bytes held at once; more: 429")
    timeout_seconds: float = Field(10.0, gt=0, le=3600, description="a request not answered by then is given up")
    drain_seconds: float = Field(5.0, ge=0, le=600, description="after SIGTERM: not ready, but still answering")
    shutdown_seconds: int = Field(30, ge=1, le=3600, description="after draining: time for what is under way")

    admin_token: SecretStr | None = Field(None, description="bearer token of routes that change state; unset: off")
    admin_token_file: Path | None = Field(None, description="a file with the admin token")
    read_token: SecretStr | None = Field(None, description="bearer token of all other routes but health; unset: open")
    read_token_file: Path | None = Field(None, description="a file with the read token")

    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    access_log: bool = Field(False, description="one line a request")

    monitoring: MonitoringSettings = MonitoringSettings()

    @field_validator("host")
    @classmethod
    def _address(cls, value: str) -> str:
        value = "127.0.0.1" if value == "localhost" else value
        try:
            return str(ipaddress.ip_address(value))
        except ValueError:
            raise ValueError(f"host is an IP address such as 127.0.0.1 or 0.0.0.0, {value!r} arrived") from None

    @field_validator("bundle", "policies", "state_dir", "admin_token_file", "read_token_file")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        # Workers run in another directory than the caller's.
        return None if value is None else value.expanduser().absolute()

    @field_validator("admin_token", "read_token")
    @classmethod
    def _well_formed(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _TOKEN.fullmatch(value.get_secret_value()):
            raise ValueError("a token has 16 to 512 printable ASCII characters without spaces")
        return value

    @model_validator(mode="after")
    def _one_source_a_token(self) -> "Settings":
        for name in ("admin_token", "read_token"):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise ValueError(f"{name} and {name}_file are both set; set one of them")
        return self


def load_settings(
    flags: Mapping[str, Any] | None = None, *, config: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Settings from flags, environment and file; one sentence says what is wrong with a bad one."""
    environment = os.environ if environ is None else environ
    if config is None and environment.get(CONFIG_VARIABLE):
        config = Path(environment[CONFIG_VARIABLE])
    _refuse_unknown_variables(environment)
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    try:
        settings = _loader(config)(**given)
    except SettingsError:
        raise
    except ValidationError as fault:
        raise SettingsError(_sentence(fault)) from None
    except OSError as fault:
        raise SettingsError(f"the configuration {config} cannot be read: {fault.strerror}") from None
    except SourceError as fault:
        raise SettingsError(f"an environment variable is not the JSON that its setting takes: {fault}") from None
    except ValueError as fault:
        raise SettingsError(f"the configuration {config} is not valid TOML: {fault}") from None
    return _with_token_files(settings)


def masked(settings: Settings) -> dict[str, Any]:
    """The settings as JSON; secrets show only whether they are set."""
    return settings.model_dump(mode="json")


def save_resolved(settings: Settings, path: Path) -> None:
    """Write the settings, secrets included, for this server's own workers; the file is the owner's alone."""
    document = to_json(_reveal(settings.model_dump()))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(document)


def current_settings() -> Settings:
    """The settings of this process: those that `airlock serve` resolved, else from environment and file."""
    resolved = os.environ.get(RESOLVED_VARIABLE)
    if resolved is None:
        return load_settings()
    return Settings.model_validate_json(Path(resolved).read_bytes())


def _loader(config: Path | None) -> type[Settings]:
    class Loaded(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            if config is None:
                return init_settings, env_settings
            if not config.is_file():
                raise SettingsError(f"the configuration {config} does not exist")
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, config)

    return Loaded


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | {CONFIG_VARIABLE, RESOLVED_VARIABLE}
    nested = {PREFIX + name.upper() for name, field in Settings.model_fields.items() if _has_parts(field.annotation)}
    for variable in environment:
        head, parted, _ = variable.upper().partition("__")
        if variable.startswith(PREFIX) and head not in (nested if parted else known):
            raise SettingsError(
                f"the environment variable {variable} is no setting of the service; unset it or correct its name "
                "(on Kubernetes a service called airlock makes such variables: set enableServiceLinks to false)"
            )


def _has_parts(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _sentence(fault: ValidationError) -> str:
    """The first fault: which setting, what is allowed, what arrived (unless it is a secret)."""
    first = fault.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{name} is no setting of the service; `airlock serve --show-config` lists those there are"
    message = first["msg"].removeprefix("Value error, ")
    secret = "token" in name or not isinstance(first["input"], str | int | float | bool)
    arrived = "" if secret else f" ({str(first['input'])[:60]!r} arrived)"
    return f"setting {name}: {message}{arrived}" if name else f"settings: {message}"


def _with_token_files(settings: Settings) -> Settings:
    changes: dict[str, Any] = {}
    for name in ("admin_token", "read_token"):
        path: Path | None = getattr(settings, f"{name}_file")
        if path is None:
            continue
        try:
            token = path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as fault:
            raise SettingsError(f"{name}_file {path} cannot be read: {fault}") from None
        if not _TOKEN.fullmatch(token):
            raise SettingsError(f"{name}_file {path} must hold 16 to 512 printable ASCII characters without spaces")
        changes |= {name: SecretStr(token), f"{name}_file": None}
    return settings.model_copy(update=changes)


def _reveal(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, dict):
        return {key: _reveal(item) for key, item in value.items()}
    return value
