"""Settings: where they come from, which wins, what is refused, and what is never shown."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.server import COMMAND

from service.machine import cpus, resolved
from service.settings import (
    RESOLVED_VARIABLE,
    Settings,
    SettingsError,
    current_settings,
    load_settings,
    masked,
    save_resolved,
)

SECRET = "a-secret-of-the-tests"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AIRLOCK_"):
            monkeypatch.delenv(name)


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "airlock.toml"
    path.write_text(text)
    return path


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toml(tmp_path, "port = 4000\nqueue = 7\nworkers = 3\n[monitoring]\nenabled = false\n")
    monkeypatch.setenv("AIRLOCK_PORT", "5000")
    monkeypatch.setenv("AIRLOCK_QUEUE", "8")
    settings = load_settings({"port": 6000, "host": None}, config=config)
    assert (settings.port, settings.queue, settings.workers, settings.host) == (6000, 8, 3, "127.0.0.1")
    assert not settings.monitoring.enabled


def test_the_file_can_be_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRLOCK_CONFIG", str(toml(tmp_path, "port = 4000")))
    monkeypatch.setenv("AIRLOCK_MONITORING__ENABLED", "false")
    settings = load_settings()
    assert settings.port == 4000
    assert not settings.monitoring.enabled


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 4000", "prot"),
        ("[monitoring]\nenbled = true", "monitoring.enbled"),
        ("[port]\na = 1", "port"),
        ("port = 99999", "port"),
        ("port = ", "TOML"),
        ('host = "example.org"', "IP address"),
        (f'admin_token = "{SECRET}"\nadmin_token_file = "x"', "both"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refusal:
        load_settings(config=toml(tmp_path, text))
    assert SECRET not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="does not exist"):
        load_settings(config=tmp_path / "none.toml")


@pytest.mark.parametrize("name", ["AIRLOCK_PROT", "AIRLOCK_PORT_3000_TCP", "AIRLOCK_MONITORING__X", "AIRLOCK_"])
def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(SettingsError):
        load_settings()


@pytest.mark.parametrize("token", ["short", "has a space in it, yes", "é" * 20, "x" * 600])
def test_a_weak_token_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(SettingsError, match="16 to 512") as refusal:
        load_settings({"admin_token": token})
    assert token not in str(refusal.value)


def test_a_token_comes_from_a_file_as_well(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(SECRET + "\n")
    settings = load_settings({"admin_token_file": path})
    assert settings.admin_token is not None
    assert settings.admin_token.get_secret_value() == SECRET
    path.write_text("short")
    with pytest.raises(SettingsError, match="16 to 512"):
        load_settings({"admin_token_file": path})
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings({"admin_token_file": tmp_path / "none"})


def test_secrets_are_masked_and_survive_the_way_to_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings({"admin_token": SECRET, "port": 4000, "monitoring": {"ledger_url": f"sqlite://{SECRET}"}})
    assert SECRET not in json.dumps(masked(settings))
    assert SECRET not in repr(settings)
    path = tmp_path / "resolved.json"
    save_resolved(settings, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    monkeypatch.setenv(RESOLVED_VARIABLE, str(path))
    assert current_settings() == Settings(**settings.model_dump())


def test_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings({"bundle": Path("b")}).bundle == tmp_path / "b"


def test_defaults_come_from_the_machine() -> None:
    on_cpu = resolved(Settings(), cuda=False)
    assert (on_cpu.workers, on_cpu.threads, on_cpu.batching) == (min(cpus(), 8), 1, "off")
    on_gpu = resolved(Settings(), cuda=True)
    assert (on_gpu.workers, on_gpu.batching) == (1, "on")
    given = resolved(Settings(workers=3, threads=2, batching="on"), cuda=False)
    assert (given.workers, given.threads, given.batching) == (3, 2, "on")


def serve(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **environment}
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=environment, timeout=60)


def test_show_config_prints_masked_json() -> None:
    shown = serve("--show-config", "--port", "4001", AIRLOCK_ADMIN_TOKEN=SECRET)
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert document["port"] == 4001
    assert document["monitoring"]["enabled"] is True
    assert SECRET not in shown.stdout


def test_an_unknown_variable_ends_with_one_sentence_and_code_1() -> None:
    refused = serve("--show-config", AIRLOCK_PROT="1")
    assert refused.returncode == 1
    assert refused.stderr.startswith("airlock: ")
    assert refused.stderr.count("\n") == 1


def test_bad_usage_ends_with_code_2() -> None:
    assert serve("--provider", "quantum").returncode == 2


def test_the_command_starts_without_the_heavy_imports() -> None:
    heavy = "('bentoml', 'onnxruntime', 'numpy')"
    code = f"import service.commands.serve, sys; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
