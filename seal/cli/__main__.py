"""`python -m seal.cli`: the `seal` command for an environment whose scripts are not on PATH."""

import sys

from seal.cli.main import main

sys.exit(main())
