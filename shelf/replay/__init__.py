"""Stored rollouts played again, for `seal verify`, `seal rescore`, `seal diagnose rollouts` and the viewer."""
