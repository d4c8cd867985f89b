"""What a run has shown: tables for the terminal and one picture.

``summarise(run_dir)`` is what the launcher prints at the end; ``seal report RUN``
does the same at any time.
"""

from shelf.view.report.seeds import seeds_table
from shelf.view.report.summary import summarise

__all__ = ["seeds_table", "summarise"]
