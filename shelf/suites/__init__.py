"""Models on benchmarks: an endpoint or a checkpoint on the multi-turn tasks and on official suites."""

OFFICIAL_MODEL = "Qwen/Qwen3-8B-FC"
"""A model that the official tool knows and reads in prompt mode bfcl_qwen_fc; exported folders have its name."""

OFFICIAL_TOOL_CALLS = "openbmb/MiniCPM-SALA-FC"
"""The same for openai_fc: its handler is the tool's handler for chat completions with tool calls."""

FIXED = {"repetition_penalty": 1.0, "top_k": -1}
"""Values that rollouts, validations and evaluations share; if a request left them out, the generation_config.json of
the model (Qwen2.5: 1.05 and 20) would apply."""
