"""verl and vLLM on a machine without an accelerator, and the list of their private names that SEAL uses."""
