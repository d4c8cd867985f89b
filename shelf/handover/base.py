"""The model that a run began with: its name for others, and its licence."""

from pathlib import Path

from huggingface_hub import ModelCard, try_to_load_from_cache

from seal.system.paths import HOME
from shelf.handover.source import Source


class Base:
    """The base model of a run. path: as the recipe has it, a folder or a name on the hub; None if unknown."""

    def __init__(self, source: Source):
        self.path: str | None = source.setting("actor_rollout_ref", "model", "path")

    @property
    def folder(self) -> Path | None:
        """Its folder on this machine, if it is one."""
        folder = Path(self.path).expanduser() if self.path else None
        return folder if folder and folder.is_dir() else None

    @property
    def on_hub(self) -> bool:
        """Whether it is named as on the hub."""
        return bool(self.path) and not Path(self.path).is_absolute() and self.path.count("/") == 1

    @property
    def name(self) -> str:
        """Its name for others: on the hub, in this repository, or the name of its folder only."""
        if self.path is None:
            return "unknown"
        path = Path(self.path)
        if not path.is_absolute():
            return self.path
        return str(path.relative_to(HOME)) if path.is_relative_to(HOME) else path.name

    def licence(self) -> str | None:
        """The licence that its own card states, from its folder or the cache; None if it does not say."""
        card = self._card()
        if card is None:
            return None
        try:
            found = ModelCard.load(card, ignore_metadata_errors=True).data.license
        except (OSError, ValueError):
            return None
        return found if isinstance(found, str) else None

    def _card(self) -> Path | None:
        if self.folder is not None:
            return self.folder / "README.md" if (self.folder / "README.md").is_file() else None
        cached = try_to_load_from_cache(self.path, "README.md") if self.on_hub else None
        return Path(cached) if isinstance(cached, str) else None
