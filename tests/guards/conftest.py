import pytest

from saga_engine.stores import open_store
from tests.guards.world import Watched


@pytest.fixture
async def store():
    """A guard store of its own."""
    opened = open_store("memory://")
    await opened.open()
    yield opened.guard_store()
    await opened.close()


@pytest.fixture
def watched(store):
    """The same, with a book of what it was asked."""
    return Watched(store)
