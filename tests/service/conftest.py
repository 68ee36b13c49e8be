"""Bundles, applications in this process and a shared server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.echo import WIDTH, activate, save_echo_bundle
from support.local import Local
from support.server import Server, serving

from models.bundle import Bundle
from models.inputs import ImageInput, TensorInput


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """A tensor bundle with an active policy: both doors at 0.5."""
    bundle = save_echo_bundle(tmp_path / "bundle", TensorInput(shape=(WIDTH,)))
    activate(bundle)
    return bundle


@pytest.fixture
def image_bundle(tmp_path: Path) -> Bundle:
    """An image bundle of 4×4 grey pixels, both doors at 100."""
    spec = ImageInput(height=4, width=4, channels=1, interpolation="nearest")
    bundle = save_echo_bundle(tmp_path / "images", spec, "pixels")
    activate(bundle, 100, 100)
    return bundle


@pytest.fixture
def make_local(tmp_path: Path) -> Iterator[Callable[..., Local]]:
    """Start applications in this process; all are stopped at the end."""
    started: list[Local] = []

    def make(bundle: Bundle, **settings: object) -> Local:
        (tmp_path / "state").mkdir(exist_ok=True)
        started.append(Local(bundle, tmp_path / "state", **settings))
        return started[-1]

    yield make
    for local in started:
        local.close()


@pytest.fixture
def local(bundle: Bundle, make_local: Callable[..., Local]) -> Local:
    """The tensor bundle's application."""
    return make_local(bundle)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server of the tensor bundle with two workers, shared by a module's tests."""
    root = tmp_path_factory.mktemp("served")
    bundle = save_echo_bundle(root / "bundle", TensorInput(shape=(WIDTH,)))
    activate(bundle)
    with serving(bundle, root / "run", workers=2) as running:
        yield running
