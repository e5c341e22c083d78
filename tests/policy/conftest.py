import pytest

from saga_engine.stores import open_store


@pytest.fixture
async def store():
    """A guard store of its own."""
    opened = open_store("memory://")
    await opened.open()
    yield opened.guard_store()
    await opened.close()
