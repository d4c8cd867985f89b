"""The adapter is a package of its own: its tests read it from the folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
