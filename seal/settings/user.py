"""`seal.user`: the language model that plays the user."""

from typing import Self

from pydantic import NonNegativeFloat, PositiveFloat, model_validator

from seal.settings.base import Count, Settings

KEY_VARIABLE = "SEAL_USER_API_KEY"


class UserSettings(Settings):
    """The model that plays the user in tasks that have a part for one (docs/environments.md#a-simulated-user)."""

    base_url: str | None = None
    """An OpenAI-compatible endpoint, its key in SEAL_USER_API_KEY; `null` plays the user's messages of the tasks."""
    model: str = ""
    """The model's name there."""
    temperature: NonNegativeFloat = 0.0
    """The temperature of the user's messages."""
    concurrency: Count = 64
    """Requests that one agent-loop worker has open at a time; more of them wait."""
    timeout_s: PositiveFloat = 120
    """Seconds for one message of the user, after which the rollout is lost (`user_timeout`) and started again."""

    @model_validator(mode="after")
    def _names_a_model(self) -> Self:
        if self.base_url is not None and not (self.model and self.base_url.startswith(("http://", "https://"))):
            raise ValueError(
                "seal.user.base_url must be http://HOST:PORT/v1 and needs the name of a model, seal.user.model"
            )
        return self
