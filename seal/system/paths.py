"""Where the repository is: recipes, data and run folders are named relative to it."""

from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
