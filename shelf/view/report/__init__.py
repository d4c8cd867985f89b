"""What a run has shown: tables for the terminal and one picture (`seal report RUN`)."""
