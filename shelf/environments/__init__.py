"""Environments beside BFCL."""
