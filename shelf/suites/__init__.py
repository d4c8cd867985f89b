"""Models on benchmarks: an endpoint or a checkpoint on the multi-turn tasks and on official suites."""

OFFICIAL_MODEL = "Qwen/Qwen3-8B-FC"
"""A model that the official tool knows and reads in the prompt mode bfcl_qwen_fc; the name of the exported folder."""
