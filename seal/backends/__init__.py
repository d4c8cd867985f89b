"""What verl and vLLM need to run on a machine without an accelerator."""
