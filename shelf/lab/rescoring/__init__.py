"""Stored episodes, judged again by the present checker, taxonomy and reward."""
