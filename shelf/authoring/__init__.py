"""Environments of your own: written, tried and checked against the contract."""
