"""The OpenEnv server, which plays each session's episodes on SEAL's environment service."""
