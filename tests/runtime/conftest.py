import pytest

from tests.support.servers import EmbeddedFolder


@pytest.fixture
def folder(tmp_path):
    """A folder for an embedded store, whose keys a test can damage; whatever server is left in it dies with the test."""
    with EmbeddedFolder(tmp_path / "saga") as folder:
        yield folder
