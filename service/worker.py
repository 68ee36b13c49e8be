"""A worker process: everything that answers requests, put together, started, watched over and stopped."""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import orjson

from models.bundle import Bundle
from models.runtime import CUDA
from service.engine import BatchingEngine, Cost, DirectEngine, Engine
from service.gate import Gate, Observer, ServiceContext
from service.launch import bundle_path, open_store, runtime_options
from service.settings import Settings
from service.web.access import Tokens
from service.web.admission import Admission
from service.web.asgi import WebApp
from service.web.classify import Classifier
from service.web.health import HealthRoutes
from service.web.ids import request_id
from service.web.inputs import Reader
from service.web.policies import Policies
from service.web.router import Route, Router
from service.web.table import Endpoints, build_routes
from service.web.v2 import V2

logger = logging.getLogger("airlock.worker")

SWEEP_SECONDS = 0.05
POLL_SECONDS = 0.25
_SWITCH_SECONDS = 0.0005  # how long the event loop waits for a thread that counts or writes, not 5 ms as it comes


class Worker:
    """One process's share of a server."""

    def __init__(self, settings: Settings) -> None:
        started = time.perf_counter()
        self.settings = settings
        self.bundle = Bundle.open(bundle_path(settings))
        scorer = self.bundle.scorer(runtime_options(settings, self.bundle))
        self.gate = Gate(self.bundle, open_store(settings, self.bundle))
        self.admission = Admission(
            queue=settings.queue, max_bytes=settings.max_pending_bytes, timeout=settings.timeout_seconds
        )
        spec = self.bundle.manifest.input
        self.reader = Reader(spec, max_instances=settings.max_instances, max_pixels=settings.max_pixels)
        self.engine: Engine
        if settings.batching == "on" or (settings.batching == "auto" and scorer.provider == CUDA):
            wait = settings.batch_wait_ms / 1000
            self.engine = BatchingEngine(scorer, max_batch=scorer.session.options.max_batch, wait_seconds=wait)
        else:
            self.engine = DirectEngine(scorer, Cost.measure(scorer, spec.example()))
        self.classifier = Classifier(self.bundle, self.gate, self.engine, self.reader)
        self._scorer = scorer
        self._observers: list[Observer] = []
        self._watcher: asyncio.Task[None] | None = None
        self._orphaned = False
        logger.info("the bundle is loaded: %s, %.2f s", scorer.provider, time.perf_counter() - started)

    async def start(self, web: WebApp, bento_schema: Mapping[str, Any]) -> None:
        """Load the policies, start the observers and open the doors."""
        assert self.settings.state_dir is not None  # `prepare` has set it
        context = ServiceContext(
            self.settings, self.bundle, self.gate.store, self.gate, self.admission, self.settings.state_dir
        )
        routes = self._monitoring(context)
        for observer in self._observers:
            await observer.start()
        self.gate.observers = self._observers
        self.gate.swap(*await asyncio.to_thread(self.gate.load))
        endpoints = Endpoints(
            self.classifier,
            V2(
                self.bundle,
                self.gate,
                self.engine,
                self._scorer.session.input_name,
                max_instances=self.settings.max_instances,
            ),
            Policies(self.gate),
            HealthRoutes(self.gate, lambda: web.draining),
            bento_schema,
        )
        tokens = Tokens(self.settings.admin_token, self.settings.read_token)
        web.open(Router(build_routes(context, endpoints, routes)), tokens, self.admission)
        drain_on_sigterm(web, self.settings.drain_seconds)
        self._watcher = asyncio.create_task(self._watch())
        _settle_interpreter()

    async def classify(self, instances: list[Any], ids: list[str] | None) -> dict[str, Any]:
        """Decide for instances that did not come over HTTP."""
        document = {"instances": instances} if ids is None else {"instances": instances, "ids": ids}
        answer = await self.classifier.answer(self.reader.from_document(document), request_id(None))
        result: dict[str, Any] = orjson.loads(answer)
        return result

    async def stop(self) -> None:
        """Flush the observers; every answer has left by now."""
        if self._watcher is not None:
            self._watcher.cancel()
        for observer in self._observers:
            try:
                await observer.stop()
            except Exception:  # the others must still flush
                logger.exception("an observer failed to stop")
        self.engine.close()
        self.reader.close()

    def _monitoring(self, context: ServiceContext) -> list[Route]:
        if not self.settings.monitoring.enabled:
            return []
        from service.monitor import build_observers, routes

        monitoring = self.settings.monitoring
        self.gate.keep_inputs = monitoring.ledger and monitoring.ledger_inputs != "none"
        self._observers = build_observers(context)
        return routes(context, self._observers)

    async def _watch(self) -> None:
        """Deadlines, policy changes, and whether the parent still lives; nothing may end this loop but the end."""
        parent = os.getppid()
        polled = 0.0
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                self.admission.sweep()
                if time.monotonic() - polled >= POLL_SECONDS:
                    polled = time.monotonic()
                    await self._poll(parent)
            except Exception:
                logger.exception("the watch over this worker failed and goes on")

    async def _poll(self, parent: int) -> None:
        if self.gate.changed():
            self.gate.swap(*await asyncio.to_thread(self.gate.load))
        if os.getppid() != parent and not self._orphaned:
            # An orphan would hold the port against the server's successor.
            self._orphaned = True
            logger.error("the parent process is gone, so this worker ends")
            os.kill(os.getpid(), signal.SIGTERM)


def drain_on_sigterm(web: WebApp, seconds: float) -> None:
    """On SIGTERM say "not ready" and go on answering for a while, so that load balancers can look away first."""
    if threading.current_thread() is not threading.main_thread():
        return  # an application under test: signals belong to somebody else
    stop = signal.getsignal(signal.SIGTERM)
    if not callable(stop):
        return
    loop = asyncio.get_running_loop()

    def drain(number: int, frame: FrameType | None) -> None:
        if web.draining or seconds == 0:
            _call(stop, number, frame)
            return
        web.draining = True
        logger.info("draining for %g s", seconds)
        loop.call_soon_threadsafe(loop.call_later, seconds, _call, stop, number, None)

    signal.signal(signal.SIGTERM, drain)


def _call(handler: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None) -> None:
    handler(number, frame)


def _settle_interpreter() -> None:
    """Keep long pauses out of requests: what was made at start stays, so no collection walks it again."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
