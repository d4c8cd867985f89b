"""The Prometheus metrics of the service."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

disable_created_metrics()


class Metrics:
    """What happened since the service started.

    episodes: counted by event. failures: by cause. tool_errors: by class.
    """

    def __init__(self) -> None:
        """Every metric starts at zero."""
        self._registry = CollectorRegistry()
        own = {"namespace": "env_service", "registry": self._registry}
        self.episodes = Counter("episodes", "Episodes by event.", ("event",), **own)
        self.failures = Counter("failures", "Requests that failed, by cause.", ("cause",), **own)
        self.tool_errors = Counter("tool_errors", "Steps with a tool error, by class.", ("class",), **own)
        self._requests = Counter("requests", "Answered requests.", ("verb", "status"), **own)
        self._seconds = Histogram("request_seconds", "Time to answer.", ("verb",), buckets=_BOUNDS, **own)

    def gauge(self, name: str, description: str, read: Callable[[], float]) -> None:
        """Add a gauge whose value is read whenever the metrics are."""
        Gauge(f"env_service_{name}", description, registry=self._registry).set_function(read)

    def observe(self, verb: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self._requests.labels(verb, status).inc()
        self._seconds.labels(verb).observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
