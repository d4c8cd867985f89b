"""Validation logs: rates, intervals and paired comparisons."""
