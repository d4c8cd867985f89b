"""The plain multi-turn benchmark against an endpoint or a checkpoint."""
