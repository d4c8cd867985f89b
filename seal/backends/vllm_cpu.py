"""Entry point of `vllm.general_plugins`; vLLM runs it in the API process, the engine and every worker."""


def register() -> None:
    """Prepare vLLM's CPU build for weight updates; does nothing on other devices."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from seal.backends.patches import plain_linear

        plain_linear()
