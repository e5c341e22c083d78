"""A sealed store keeps every law of a store, on every kind of server."""

import uuid

import pytest

from saga_engine.privacy.keyring import Keyring
from saga_engine.privacy.sealed_store import SealedStore
from saga_engine.stores import open_store
from saga_engine.testing.conformance import StoreConformance
from saga_engine.testing.guard_conformance import GuardConformance


async def sealed(url):
    store = SealedStore(open_store(url), Keyring({"k1": bytes(range(32))}))
    await store.open()
    return store


@pytest.fixture
async def in_memory():
    store = await sealed("memory://")
    yield store
    await store.close()


@pytest.fixture
async def embedded(shared_folder):
    store = await sealed(f"{shared_folder.url}?namespace={uuid.uuid4().hex}")
    yield store
    await store.close()


class TestMemory(StoreConformance):
    @pytest.fixture
    def store(self, in_memory):
        return in_memory


class TestEmbedded(StoreConformance):
    @pytest.fixture
    def store(self, embedded):
        return embedded


class TestGuards(GuardConformance):
    @pytest.fixture
    def store(self, embedded):
        return embedded
