"""Entry point of `vllm.general_plugins`; vLLM runs it in the API process, the engine and every worker."""


def register() -> None:
    """Prepare vLLM for weight updates: the run's own socket, their check, and on a CPU layers that notice them."""
    from vllm.platforms import current_platform

    from seal.backends import weight_check, weight_socket

    weight_socket.listen()
    weight_check.register()
    if current_platform.is_cpu():
        from seal.backends.patches import plain_linear

        plain_linear()
