"""Categories over all environments: the benchmark's keep their names, others begin with their environment's."""

from seal.settings.data import BENCHMARK


def qualify(environment: str, category: str) -> str:
    """The category as profiles, cues and logs name it: ``base`` of the benchmark, else ``tau2_telecom/mms_issue``."""
    return category if environment == BENCHMARK else f"{environment}/{category}"


def environment_of(category: str) -> str:
    """The environment of a qualified category."""
    environment, slash, _ = category.partition("/")
    return environment if slash else BENCHMARK
