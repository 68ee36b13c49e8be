"""The wire of a real server: heads are bounded in length and time, and what is no HTTP is refused as all else is."""

import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson
import pytest
from support.echo import WIDTH, activate, save_echo_bundle
from support.server import Server, serving

from models.inputs import TensorInput
from service.schemas import ProblemDocument

SECONDS = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root: Path = tmp_path_factory.mktemp("wire")
    bundle = save_echo_bundle(root / "bundle", TensorInput(shape=(WIDTH,)))
    activate(bundle)
    with serving(bundle, root / "run", keep_alive_seconds=SECONDS) as running:
        yield running


def exchange(server: Server, *pieces: bytes) -> bytes:
    """Everything the server says before it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        answer = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
            while received := connection.recv(65536):
                answer += received
        except (BrokenPipeError, ConnectionResetError):
            pass  # it had closed already
        return answer


def send_all(connection: socket.socket, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        connection.sendall(piece)


def refusal(answer: bytes) -> int:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    document = ProblemDocument.model_validate(orjson.loads(body))
    assert head.startswith(b"HTTP/1.1 %d " % document.status)
    assert document.type == "urn:airlock:problem:malformed"
    return document.status


@pytest.mark.parametrize(
    "head",
    [
        b"BREW /livez HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_problem_too(server: Server, head: bytes) -> None:
    assert refusal(exchange(server, head)) == 400


@pytest.mark.parametrize("header", [b"X-%d: " + b"a" * 1000 + b"\r\n", b"%d" + b"a" * 1000])
def test_endless_headers_are_cut_off(server: Server, header: bytes) -> None:
    """Many headers or a single one without an end: memory for them ends at the limit."""
    (worker,) = server.workers()
    before = worker.memory_info().rss
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-A: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send_all(connection, (header % number for number in range(100_000)))  # 100 MB
    assert worker.memory_info().rss - before < 20e6


def test_a_head_just_too_long_is_told_so(server: Server) -> None:
    long = b"GET /livez HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 65_536
    assert refusal(exchange(server, long)) == 431
    fitting = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-A: " + b"a" * 60_000 + b"\r\n\r\n"
    assert exchange(server, fitting).startswith(b"HTTP/1.1 200 ")


def test_a_large_body_right_behind_the_head_is_no_head(server: Server) -> None:
    body = b" " * 500_000 + b'{"instances": [[1, 1, 1, 0, 0]]}'
    head = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    assert exchange(server, head + b"Content-Length: %d\r\n\r\n" % len(body) + body).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("start", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\n"])
def test_a_head_that_never_ends_is_not_waited_for(server: Server, start: bytes) -> None:
    began = time.monotonic()
    assert exchange(server, start) == b""
    assert SECONDS * 0.9 < time.monotonic() - began < SECONDS + 10


def test_a_second_head_on_a_connection_is_bounded_too(server: Server) -> None:
    first = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    began = time.monotonic()
    answer = exchange(server, first, b"GET /livez HTTP/1.1\r\n")
    assert answer.count(b"HTTP/1.1 200") == 1
    assert time.monotonic() - began < SECONDS + 10
