"""Real server processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from support.local import ADMIN

from models.bundle import Bundle

COMMAND = (sys.executable, "-P", "-c", "from service.cli import main; main()", "serve")


@dataclass
class Server:
    """A running `airlock serve`."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def workers(self) -> list[psutil.Process]:
        """The worker processes that live."""
        living = []
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.Error):  # killed a moment ago
                if "_bentoml_impl.worker.service" in child.cmdline():
                    living.append(child)
        return living

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(bundle: Bundle, directory: Path, *, ready: bool = True, **settings: object) -> Iterator[Server]:
    """A real server process; settings go through the environment."""
    directory.mkdir(parents=True, exist_ok=True)
    given = {"admin_token": ADMIN, "drain_seconds": 0, "workers": 1, "monitoring__enabled": "false", **settings}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AIRLOCK_")}
    environment |= {f"AIRLOCK_{key.upper()}": str(value) for key, value in given.items()}
    environment["TMPDIR"] = str(directory)
    port, log = free_port(), directory / "server.log"
    command = [*COMMAND, str(bundle.path), "--port", str(port)]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env=environment, cwd=directory, stdout=stream, stderr=stream)
    server = Server(process, port, log)
    try:
        _wait_ready(server, "/readyz" if ready else "/livez")
        yield server
    finally:
        if process.poll() is None:
            server.terminate()


def _wait_ready(server: Server, path: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise AssertionError(f"the server ended: {server.log.read_text()}")
        try:
            if httpx.get(server.url + path, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the server is not ready: {server.log.read_text()}")
