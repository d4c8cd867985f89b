"""What a run has shown: tables for the terminal and one picture (`seal report RUN`)."""

from shelf.view.report.seeds import seeds_table
from shelf.view.report.summary import summarise

__all__ = ["seeds_table", "summarise"]
