"""A run's trajectories as traces: OpenTelemetry spans with OpenInference's names, which other tools show."""
