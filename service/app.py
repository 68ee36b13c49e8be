"""The BentoML service: its server, workers and life cycle around our routes.

`airlock serve` starts it; `bentoml serve service.app:Airlock` does too, with settings from the environment. Requests
are answered before BentoML's middleware stack (see `service.web.asgi`); `classify` below is what BentoML's own
clients see in `/schema.json`, and they reach the same route.
"""

import os
from typing import Any

import bentoml
from _bentoml_sdk import Service  # type: ignore[import-untyped]
from uvicorn.config import HTTP_PROTOCOLS

from service import logs
from service.launch import prepare
from service.settings import RESOLVED_VARIABLE, current_settings
from service.web import protocol
from service.web.asgi import WebApp
from service.worker import Worker

if RESOLVED_VARIABLE not in os.environ:
    prepare(current_settings())
settings = current_settings()
HTTP_PROTOCOLS["auto"] = protocol.NAME  # BentoML starts uvicorn itself and passes no protocol on


class GatedService(Service[Any]):
    """A BentoML service whose requests are answered by our application."""

    web: WebApp

    def to_asgi(self, is_main: bool = True) -> Any:
        """BentoML's application for the life cycle, ours in front of it for requests."""
        self.web = WebApp(super().to_asgi(is_main), access_log=settings.access_log)
        return self.web


@bentoml.service(
    name="airlock",
    service_class=GatedService,
    workers=settings.workers,
    metrics={"enabled": False},
    tracing={"excluded_urls": ".*"},
    logging={"access": {"enabled": False}},
    traffic={"timeout": settings.timeout_seconds},
)
class Airlock:
    """A gate with two doors in front of a classifier."""

    bento_service: GatedService

    def __init__(self) -> None:
        logs.configure(settings.log_format, settings.log_level)
        self.worker = Worker(settings)

    @bentoml.on_startup
    async def start(self) -> None:
        """Open the doors."""
        await self.worker.start(self.bento_service.web, self.bento_service.schema())

    @bentoml.on_shutdown
    async def stop(self) -> None:
        """Flush what was observed."""
        await self.worker.stop()

    @bentoml.api(route="/v1/classify")
    async def classify(self, instances: list[Any], ids: list[str] | None = None) -> dict[str, Any]:
        """Decide for every instance; see /docs for the whole of what the route takes and gives."""
        return await self.worker.classify(instances, ids)
