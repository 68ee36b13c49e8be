"""From settings to a server that may start: bundle proven, the machine's defaults filled in, a directory of its own."""

import atexit
import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from calibration.policy import Policy
from calibration.store import PolicyStore
from models.bundle import Bundle
from models.runtime import CUDA, RuntimeOptions, cuda_driver
from service import policies
from service.machine import resolved
from service.settings import RESOLVED_VARIABLE, Settings, SettingsError, save_resolved

_STATE_SECONDS = 20.0  # a killed server's workers notice soon, but may still drain and flush


@dataclass(frozen=True)
class Launch:
    """What the parent process knows before it starts workers."""

    settings: Settings
    bundle: Bundle
    policy: Policy | None
    provider: str
    directory: Path


def bundle_path(settings: Settings) -> Path:
    """The bundle to serve: the one named, else the embedded default."""
    if settings.bundle is not None:
        return settings.bundle
    from models.fashion import bundle_path as embedded

    return Path(embedded())


def open_store(settings: Settings, bundle: Bundle) -> PolicyStore:
    """The policy store of a bundle, which may lie elsewhere."""
    return policies.open_store(bundle, settings.policies)


def runtime_options(settings: Settings, bundle: Bundle) -> RuntimeOptions:
    """How the graph is run: as the bundle pins it, with what the operator decided."""
    overrides: dict[str, object] = {"threads": settings.threads}
    if settings.provider != "auto":
        overrides["provider"] = settings.provider
    if settings.max_batch:
        overrides["max_batch"] = settings.max_batch
    return bundle.options(**overrides)


def prepare(settings: Settings) -> Launch:
    """Verify everything that can fail, then make the server's directory; a refusal leaves nothing behind."""
    path = bundle_path(settings)
    bundle = Bundle.open(path)
    policy = open_store(settings, bundle).active()
    provider = _prove(path, runtime_options(settings, bundle))
    _await_state(settings)
    _check_ledger(settings)
    settings = resolved(settings, cuda=provider == CUDA)
    settings = settings.model_copy(update={"bundle": path.absolute()})
    directory = Path(tempfile.mkdtemp(prefix="airlock-"))
    atexit.register(_remove, directory, os.getpid())
    if settings.state_dir is None:
        settings = settings.model_copy(update={"state_dir": directory / "state"})
    _furnish(directory, settings)
    return Launch(settings, bundle, policy, provider, directory)


def _await_state(settings: Settings) -> None:
    """Refuse a state directory that cannot be used or that another server is using, before any worker starts."""
    if settings.state_dir is not None and settings.monitoring.enabled:
        from service.monitoring.station import await_free, check_usable

        check_usable(settings.state_dir / "monitor")
        await_free(settings.state_dir / "monitor", _STATE_SECONDS)


def _check_ledger(settings: Settings) -> None:
    """Refuse a URL that no database can ever have; one that is only away is waited for."""
    url = settings.monitoring.ledger_url
    if url is not None and settings.monitoring.enabled and settings.monitoring.ledger:
        from service.ledger.engine import check_url

        check_url(url.get_secret_value())


def _furnish(directory: Path, settings: Settings) -> None:
    """Directories and environment that this server's workers inherit; no other server shares them."""
    (directory / "metrics").mkdir()
    (directory / "bentoml").mkdir()
    assert settings.state_dir is not None  # `prepare` has set it
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise SettingsError(f"the state directory {settings.state_dir} cannot be made: {fault.strerror}") from None
    save_resolved(settings, directory / "settings.json")
    os.environ |= {
        RESOLVED_VARIABLE: str(directory / "settings.json"),
        "BENTOML_HOME": str(directory / "bentoml"),
        "BENTOML_DO_NOT_TRACK": "True",
        "PROMETHEUS_MULTIPROC_DIR": str(directory / "metrics"),
    }


def _prove(path: Path, options: RuntimeOptions) -> str:
    """Run the graph once and say which provider did; CUDA in a process of its own, since its memory stays taken."""
    if options.provider == "cpu" or not cuda_driver():
        return _provider(path, options)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_provider, path, options).result()


def _provider(path: Path, options: RuntimeOptions) -> str:
    return str(Bundle.open(path).scorer(options).provider)


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
