"""A run in one file that others can check: `seal certify` writes it, `seal verify` replays it."""
