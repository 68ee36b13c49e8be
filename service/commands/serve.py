"""`airlock serve`: verify, resolve, then hand over to BentoML's process manager."""

import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from service.launch import Launch
    from service.settings import Settings


@click.command("serve")
@click.argument("bundle", required=False, type=click.Path(path_type=Path))
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with settings.")
@click.option("--host", help="IP address to listen on (127.0.0.1).")
@click.option("--port", type=int, help="Port to listen on, 0 for any free one (3000).")
@click.option("--workers", type=int, help="Processes; 0: one a CPU, at most 8, or one with CUDA.")
@click.option("--threads", type=int, help="ONNX Runtime threads a worker; 0: one on a CPU.")
@click.option("--provider", type=click.Choice(["auto", "cpu", "cuda"]), help="Where the graph runs.")
@click.option("--batching", type=click.Choice(["auto", "on", "off"]), help="Run requests together; auto: with CUDA.")
@click.option(
    "--store", "--policies", "policies", type=click.Path(path_type=Path), help="The policy store, if not BUNDLE's."
)
@click.option("--state-dir", type=click.Path(path_type=Path), help="Directory for what survives a restart.")
@click.option("--admin-token-file", type=click.Path(path_type=Path), help="File with the token of admin routes.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="How log lines look.")
@click.option("--access-log/--no-access-log", default=None, help="One log line a request.")
@click.option("--show-config", is_flag=True, help="Print the settings as JSON, secrets masked, and end.")
def command(config: Path | None, show_config: bool, **flags: Any) -> None:
    """Serve BUNDLE over HTTP; without BUNDLE the embedded default.

    Every setting can also be given as AIRLOCK_<NAME> or in a TOML file (--config or AIRLOCK_CONFIG).

    \b
    Example:
      airlock serve my-bundle --port 8080 --workers 2
      curl localhost:8080/v1/classify -H 'content-type: application/json' -d '{"instances": [[0.1, 0.2]]}'
    """
    from service.settings import load_settings, masked

    settings = load_settings(flags, config=config)
    if show_config:
        click.echo(json.dumps(masked(settings), indent=2))
        return
    _serve(settings)


def _serve(settings: "Settings") -> None:
    from service import logs
    from service.launch import prepare

    logs.configure(settings.log_format, settings.log_level)
    changes: dict[str, Any] = {"port": _free_port(settings.host, settings.port)}
    if os.isatty(0) and "drain_seconds" not in settings.model_fields_set:
        changes["drain_seconds"] = 0  # somebody presses Ctrl-C: no load balancer has to look away
    launch = prepare(settings.model_copy(update=changes))
    _announce(launch)
    _run(launch.settings)


def _free_port(host: str, port: int) -> int:
    """The port, known to be free, or a free one for 0."""
    from service.settings import SettingsError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as fault:
            raise SettingsError(f"cannot listen on {host} port {port}: {fault.strerror}; choose another") from None
        found: int = probe.getsockname()[1]
        return found


def _announce(launch: "Launch") -> None:
    import logging

    settings, manifest = launch.settings, launch.bundle.manifest
    logger = logging.getLogger("airlock.serve")
    logger.info(
        "%s version %s (bundle %s) on http://%s:%d: %d worker(s) of %d thread(s), at most %d items a run, "
        "batching %s, %s",
        manifest.name,
        manifest.version,
        launch.bundle.hash[:12],
        settings.host,
        settings.port,
        settings.workers,
        settings.threads,
        settings.max_batch or manifest.runtime.max_batch,
        settings.batching,
        launch.provider,
    )
    if launch.policy is None:
        logger.warning("no policy is active: the service is not ready until one is activated")
    if settings.admin_token is None:
        logger.info("no admin token is set: routes that change state are off")


def _run(settings: "Settings") -> None:
    """BentoML's server; the working directory is our packages' own, so that a caller's `service.py` is never taken."""
    from _bentoml_impl.server import serve_http  # type: ignore[import-untyped]

    import service
    from service.app import Airlock

    _respawn_quickly()
    Airlock.inject_config()  # type: ignore[attr-defined]
    serve_http(
        "service.app:Airlock",
        working_dir=str(Path(service.__file__).parent.parent),
        host=settings.host,
        port=settings.port,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )


def _respawn_quickly() -> None:
    """Look after workers every second; BentoML's ten seconds without a worker are a long time for callers."""
    from functools import partial

    from bentoml._internal.utils import circus

    circus.create_standalone_arbiter = partial(circus.create_standalone_arbiter, check_delay=1.0)
