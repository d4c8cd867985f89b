"""Counters and latencies of the service, written in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """What happened since the service started."""

    def __init__(self) -> None:
        """Everything starts at zero."""
        self.episodes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.tool_errors: Counter[str] = Counter()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._latency: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def observe(self, verb: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self._requests[verb, status] += 1
        buckets = self._latency.setdefault(verb, [0] * (len(_BOUNDS) + 1))
        buckets[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds[verb] += seconds

    def text(self, gauges: Mapping[str, float]) -> str:
        """All figures, the given gauges included (name without prefix to value)."""
        lines: list[str] = []
        for name, value in gauges.items():
            lines += [f"# TYPE env_service_{name} gauge", f"env_service_{name} {value:g}"]
        lines += _counter("episodes_total", "event", self.episodes)
        lines += _counter("failures_total", "cause", self.failures)
        lines += _counter("tool_errors_total", "class", self.tool_errors)
        lines.append("# TYPE env_service_requests_total counter")
        for (verb, status), count in sorted(self._requests.items()):
            lines.append(f'env_service_requests_total{{verb="{verb}",status="{status}"}} {count}')
        lines.append("# TYPE env_service_request_seconds histogram")
        for verb, buckets in sorted(self._latency.items()):
            total = 0
            for bound, count in zip((*map(str, _BOUNDS), "+Inf"), buckets, strict=True):
                total += count
                lines.append(f'env_service_request_seconds_bucket{{verb="{verb}",le="{bound}"}} {total}')
            lines.append(f'env_service_request_seconds_sum{{verb="{verb}"}} {self._seconds[verb]:.6f}')
            lines.append(f'env_service_request_seconds_count{{verb="{verb}"}} {total}')
        return "\n".join(lines) + "\n"


def _counter(name: str, label: str, counts: Counter[str]) -> list[str]:
    head = [f"# TYPE env_service_{name} counter"]
    return head + [f'env_service_{name}{{{label}="{key}"}} {count}' for key, count in sorted(counts.items())]
