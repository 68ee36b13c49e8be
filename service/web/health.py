"""Health: live while the event loop turns, ready while decisions can be made and the server is not draining."""

from collections.abc import Callable

from service.gate import Gate
from service.problems import not_ready
from service.web.asgi import NO_POLICY
from service.web.router import Request, Response, json_response


class HealthRoutes:
    """The routes that load balancers and orchestrators ask."""

    def __init__(self, gate: Gate, draining: Callable[[], bool]) -> None:
        self._gate = gate
        self._draining = draining

    async def live(self, request: Request) -> Response:
        """The process answers."""
        return json_response({"live": True})

    async def ready(self, request: Request) -> Response:
        """The bundle was verified and warmed up at start; what remains is a policy, and not being on the way out."""
        if self._draining():
            raise not_ready("The service is draining; send new requests elsewhere.")
        if self._gate.view.policy is None:
            raise not_ready(NO_POLICY)
        return json_response({"ready": True})
