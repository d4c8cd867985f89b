"""The report of a run: tables for the terminal and one picture (`seal report RUN`)."""
