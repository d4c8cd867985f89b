BENCHMARK = "bfcl-eval==2026.3.23"
"""What the default environment is made of; an extra cannot name it, because its own requirements pull in torch."""
