"""The application in this process, without sockets: what BentoML would run in a worker."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import httpx

from models.bundle import Bundle
from service.schemas import ProblemDocument
from service.settings import Settings
from service.web.asgi import WebApp
from service.worker import Worker

T = TypeVar("T")
ADMIN = "admin-token-of-the-tests"


class Local:
    """The application in this process, without sockets: what BentoML would run in a worker."""

    def __init__(self, bundle: Bundle, state: Path, **settings: object) -> None:
        given = {"bundle": bundle.path, "state_dir": state, "provider": "cpu", "threads": 1, "admin_token": ADMIN}
        self.settings = Settings(**{**given, "monitoring": {"enabled": False}, **settings})  # type: ignore[arg-type]
        self.loop = asyncio.new_event_loop()
        self.worker = Worker(self.settings)
        self.web = WebApp(_no_inner)
        self.loop.run_until_complete(self.worker.start(self.web, {"name": "airlock"}))
        transport = httpx.ASGITransport(self.web)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://test")

    def run(self, work: Awaitable[T]) -> T:
        """Run a coroutine in the application's event loop."""
        return self.loop.run_until_complete(work)  # type: ignore[arg-type]

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.run(self.client.request(method, path, **options))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def classify(self, instances: Any, **more: Any) -> httpx.Response:
        """A native JSON request."""
        path = more.pop("path", "/v1/classify")
        return self.request("POST", path, json={"instances": instances, **more})

    def admin(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.request(method, path, headers={"Authorization": f"Bearer {ADMIN}"}, **options)

    def close(self) -> None:
        self.run(self.client.aclose())
        self.run(self.worker.stop())
        self.loop.close()


async def _no_inner(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("a request reached BentoML's own application")


def problem(response: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The problem document of a refusal, checked for its form."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    ProblemDocument.model_validate(document)
    assert document["type"] == f"urn:airlock:problem:{kind}"
    assert document["status"] == status
    assert document["instance"] == f"urn:airlock:request:{response.headers['x-request-id']}"
    return document
