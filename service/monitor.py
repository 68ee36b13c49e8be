"""Monitoring as the service sees it: observers to tell of decisions, and routes to mount."""

from service.gate import Observer, ServiceContext
from service.monitoring.recorder import Recorder
from service.monitoring.routes import monitoring_routes
from service.web.router import Route


def build_observers(context: ServiceContext) -> list[Observer]:
    """What watches the decisions of this worker."""
    return [Recorder(context)]


def routes(context: ServiceContext, observers: list[Observer]) -> list[Route]:
    """Metrics, status, feedback, review and alarms."""
    recorder = next(observer for observer in observers if isinstance(observer, Recorder))
    return monitoring_routes(context, recorder)
