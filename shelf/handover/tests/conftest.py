"""A finished run with two checkpoints, and the weights that are in them."""

import pytest

from tests.support.exported_run import trained, write_exportable

KINDS = "seal.interface.evolve={kinds: [feedback, guideline], adaptive: [feedback, guideline]}"


@pytest.fixture(scope="session")
def models():
    return {1: trained(1), 2: trained(2)}


@pytest.fixture(scope="session")
def run(models, tmp_path_factory):
    """A run whose best step is the second."""
    return write_exportable(tmp_path_factory.mktemp("runs") / "small", models, 2, KINDS)
