"""`python -m tests.backends.table [--check]`: the table of docs/engines.md from seal/backends/internals.toml."""

import sys

from tests.backends.internals import table
from tests.support.generated import write_table

if __name__ == "__main__":
    sys.exit(write_table("engines.md", "python -m tests.backends.table", table))
