import pytest

pytest.register_assert_rewrite(
    "saga_engine.testing.conformance",
    "saga_engine.testing.event_conformance",
    "saga_engine.testing.guard_conformance",
    "saga_engine.testing.hold_conformance",
    "saga_engine.testing.queue_conformance",
    "saga_engine.testing.write_conformance",
)

from tests.support.servers import DebianRedis, EmbeddedFolder  # noqa: E402


@pytest.fixture(scope="module")
def debian_redis():
    """One durable server for all tests of a module; each test takes a namespace of its own."""
    with DebianRedis() as server:
        yield server


@pytest.fixture(scope="module")
def shared_folder(tmp_path_factory):
    """One embedded server for all tests of a module."""
    with EmbeddedFolder(tmp_path_factory.mktemp("embedded") / "saga") as folder:
        yield folder
