"""One suite on every kind of server."""

import uuid

import pytest

from saga_engine.stores import open_store
from saga_engine.testing.conformance import StoreConformance
from tests.support.servers import EmbeddedFolder


async def opened(url):
    store = open_store(url)
    await store.open()
    return store


class TestMemory(StoreConformance):
    @pytest.fixture
    async def store(self):
        store = await opened("memory://")
        yield store
        await store.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One folder for all: the server stops with the last client of each test and comes back with its data."""
    with EmbeddedFolder(tmp_path_factory.mktemp("embedded") / "saga") as folder:
        yield folder


class TestEmbedded(StoreConformance):
    @pytest.fixture
    async def store(self, shared):
        store = await opened(f"{shared.url}?namespace={uuid.uuid4().hex}")
        yield store
        await store.close()


@pytest.mark.debian_redis
class TestDebianRedis(StoreConformance):
    @pytest.fixture
    async def store(self, debian_redis):
        store = await opened(f"{debian_redis.url}?namespace={uuid.uuid4().hex}")
        yield store
        await store.close()
