"""Models on benchmarks: an endpoint or a checkpoint on the multi-turn tasks and on official suites."""
