import pytest


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Return what makes settings, graphs and finished runs, each once."""
    from models.train_commands import Runs

    return Runs(tmp_path_factory)
