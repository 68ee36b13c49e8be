"""A calibrated echo bundle, traffic that fits it, applications, and the databases that a ledger may live in."""

import os
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.echo import WIDTH, save_echo_bundle
from support.local import Local
from support.server import free_port
from support.traffic import draw_traffic

from calibration.calibrate import calibrate
from calibration.policy import Policy
from calibration.store import PolicyStore
from calibration.table import ScoreTable
from models.bundle import Bundle
from models.inputs import TensorInput


@pytest.fixture(scope="session")
def table() -> ScoreTable:
    return ScoreTable.from_columns(**draw_traffic(np.random.default_rng(7), 6000))


@pytest.fixture(scope="session")
def policy(table: ScoreTable) -> Policy:
    """Thresholds with evidence from 6,000 scores."""
    return calibrate(table, "dsf1").policy


@pytest.fixture(scope="session")
def numbered(policy: Policy) -> Policy:
    return policy.model_copy(update={"number": 1})


def install(bundle: Bundle, policy: Policy) -> Policy:
    """Store and activate a policy."""
    store = PolicyStore(bundle.policies_dir, bundle.hash)
    stored = store.add(policy)
    assert stored.number is not None
    store.activate(stored.number)
    return stored


@pytest.fixture
def bundle(tmp_path: Path, policy: Policy) -> Bundle:
    """The echo bundle with the calibrated policy active."""
    bundle = save_echo_bundle(tmp_path / "bundle", TensorInput(shape=(WIDTH,)))
    install(bundle, policy)
    return bundle


QUICK: dict[str, Any] = {"poll_seconds": 0.1, "ledger_flush_seconds": 0.05}


@pytest.fixture
def make_local(tmp_path: Path, bundle: Bundle) -> Iterator[Callable[..., Local]]:
    """Applications in this process with monitoring on, all over one state directory."""
    started: list[Local] = []

    def make(**monitoring: object) -> Local:
        state = tmp_path / "state"
        state.mkdir(exist_ok=True)
        started.append(Local(bundle, state, monitoring={**QUICK, **monitoring}))
        return started[-1]

    yield make
    for local in started:
        if not local.loop.is_closed():
            local.close()


@pytest.fixture
def local(make_local: Callable[..., Local]) -> Local:
    return make_local()


def _postgres_binaries() -> Path | None:
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    found = shutil.which("initdb")
    if found is not None:
        places.append(Path(found).resolve().parent)
    return next((place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None)


def _unprivileged() -> list[str]:
    """PostgreSQL refuses to run as root: step down to its own user there."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL does not run as root and there is no setpriv to step down")
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real PostgreSQL server of our own."""
    binaries = _postgres_binaries()
    if binaries is None:
        pytest.skip("the PostgreSQL server (initdb, postgres) is not installed")
    user = _unprivileged()
    root = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    if user:
        shutil.chown(root, "postgres", "postgres")
    data, port = root / "data", free_port()

    def run(program: str, *options: "str | Path") -> None:
        command = [*user, str(binaries / program), "-D", str(data), *map(str, options)]
        subprocess.run(command, check=True, capture_output=True, cwd=root)

    try:
        run("initdb", "-A", "trust", "-U", "airlock")
        listen = f"-p {port} -k {root} -c listen_addresses=127.0.0.1 -c fsync=off"
        run("pg_ctl", "-w", "-l", root / "log", "-o", listen, "start")
        try:
            yield f"postgresql://airlock@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def fresh_postgres(postgres: str, request: pytest.FixtureRequest) -> str:
    """A database of the test's own on that server."""
    psycopg = pytest.importorskip("psycopg")
    name = f"t{zlib.crc32(request.node.nodeid.encode()):08x}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
        connection.execute(f"CREATE DATABASE {name}")
    server, _, _ = postgres.rpartition("/")
    return f"{server}/{name}"


@pytest.fixture(params=["sqlite", "postgres"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh ledger's URL, in both kinds of database."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.sqlite")
    url: str = request.getfixturevalue("fresh_postgres")
    return url
