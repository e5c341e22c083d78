"""What all tests share: the long forms run by hand only, files are in memory, and no test leaves a server behind."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings

from tests import precompiled, tiers
from tests.support import quick_lua

# How long an example takes says nothing of the engine: a slow machine fails no test.
settings.register_profile("saga", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A mutant is caught or not: its example need not be made small.
settings.register_profile(
    "mutants", settings.get_profile("saga"), phases=[Phase.explicit, Phase.generate], database=None
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long forms too")
    parser.addoption("--tier", choices=tiers.TIERS, help="what tests/tiers.py chooses; without it, all")
    parser.addoption("--accept-transcripts", action="store_true", help="write what the command line prints now")
    parser.addoption("--accept-pictures", action="store_true", help="make the pictures of docs/console.md anew")


def _virtual() -> asyncio.AbstractEventLoop:
    from saga_engine.testing.virtual_time import new_virtual_event_loop  # most tests need no store in memory

    return new_virtual_event_loop()


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A test (or file) that is marked ``virtual_time`` waits for no timer, unless it is marked ``real_time`` itself."""
    marks = {mark.name for mark in item.iter_markers()}
    if "virtual_time" in marks and "real_time" not in marks:
        return {"virtual": _virtual}
    return {"real": asyncio.new_event_loop}


#: Where Linux keeps files in memory, and how much of it the tests want for theirs (they use up to one gigabyte).
MEMORY, WANTED_BYTES = Path("/dev/shm"), 4 << 30


def memory_folder() -> Path | None:
    """A folder in memory, if there is room and programs may be run there; those that dead runs have left are removed.

    The servers of these tests write each record through to the disk, which takes as long as whoever else uses the disk
    lets it. A killed process loses no more in memory than on a disk. What a power cut loses is asked of the system
    calls (``stores/test_power.py``), and needs no slow disk either.
    """
    if not MEMORY.is_dir() or {"TMPDIR", "PYTEST_DEBUG_TEMPROOT"} & set(os.environ):
        return None
    for left in MEMORY.glob("saga-tests-*"):
        if not Path(f"/proc/{left.name.rpartition('-')[2]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    room = os.statvfs(MEMORY)
    if room.f_flag & os.ST_NOEXEC or room.f_bavail * room.f_frsize < WANTED_BYTES:
        return None
    folder = MEMORY / f"saga-tests-{os.getpid()}"
    folder.mkdir(mode=0o700)
    return folder


def pytest_sessionstart(session: pytest.Session) -> None:
    """Tests that open a coordinator in this folder read no settings of whoever runs them."""
    here = Path(__file__).resolve()
    stray = [path for folder in here.parents if (path := folder / "saga.toml").is_file()]
    if stray:
        raise pytest.UsageError(f"the tests would run with the policy and the limits of {stray[0]}: move it away")
    os.environ.pop("SAGA_CONFIG", None)
    os.environ["LC_ALL"] = "C.UTF-8"  # the command line speaks English to it


#: Standard error as it is when nothing captures it; a copy, made when the tests begin.
_STDERR: list[int] = []
#: The folder in memory that a run has made; one within it (``pytest.main``) has the same process, and makes none.
_FOLDER = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    _STDERR.append(os.dup(2))
    # What is collected lives as long as the run: the collector of garbage need not look through it, now or later.
    gc.disable()
    tiers.begin(config.getoption("--tier"))
    settings.register_profile("tier", settings.get_profile("saga"), max_examples=tiers.examples(100))
    settings.load_profile("tier")
    quick_lua.install()
    tier = config.getoption("--tier")
    precompiled.before_workers(config, lambda path: tier is None or tiers.imported(tier, _name(path)))
    # A worker of xdist has inherited the folder of its controller.
    if hasattr(config, "workerinput") or (folder := memory_folder()) is None:
        return
    config.stash[_FOLDER] = folder
    os.environ |= {"TMPDIR": str(folder), "PYTEST_DEBUG_TEMPROOT": str(folder)}
    tempfile.tempdir = None  # it is asked for anew


def _name(path: Path) -> str:
    """A file of tests, as ``tiers`` names it."""
    return path.relative_to(tiers.TESTS).as_posix()


#: How many objects more there are before the collector looks at the new ones: with Python's own 700 that takes a tenth of
#: the time of these tests. (It is less than what the engine takes for a large plan, ``execution/plan_cache.py``.)
_COLLECT_AFTER = 10_000


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)
    gc.enable()
    if hasattr(session.config, "workerinput"):
        _tell_less(session.config)


#: A set-up or an end of a test that takes longer is told of: ``--durations`` may show it.
_TOLD_S = 0.5


def _tell_less(config: pytest.Config) -> None:
    """A worker tells its controller of each test once: two of three reports say that a set-up and an end were as ever."""
    for told in config.hook.pytest_runtest_logreport.get_hookimpls():
        if type(told.plugin).__name__ == "WorkerInteractor":
            told.function = _unless_as_ever(told.function)


def _unless_as_ever(tell: Callable[..., object]) -> Callable[..., object]:
    def tell_less(report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed or report.duration > _TOLD_S:
            tell(report=report)

    return tell_less


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    folder = session.config.stash.get(_FOLDER, None)
    if folder is not None and exitstatus == 0:  # else it stays to be looked at, until the next run
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that goes on although its time is over ends its process, which says where it stood: no run hangs.

    (The time-out raises in the test once. What the test does then, or its fixtures, may wait for ever.)
    """
    mark = item.get_closest_marker("timeout")
    limit_s = float(mark.args[0] if mark else item.config.getoption("timeout") or item.config.getini("timeout"))
    if not item.config.getoption("usepdb"):
        faulthandler.dump_traceback_later(2 * limit_s, exit=True, file=_STDERR[-1])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In CI a failure is printed when it happens: a run that is ended before its summary has still said which it were."""
    if report.failed and "CI" in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = str(getattr(crash, "message", report.longrepr)).strip().partition("\n")[0][:200]
        sys.stderr.write(f"\nFAILED {report.nodeid} - {said} (after {report.duration:.0f} s)\n")


#: Files that take longest, whose tests come first: else a worker would begin one of them when the others have no more.
LONGEST = (
    "docs/test_site.py",
    "stores/test_cluster.py",
    "ground/test_wheel.py",
    "stores/test_cluster_away.py",
    "server/console/test_accessibility.py",
    "temporal/test_sagas.py",
    "chaos/test_chaos.py",
    "kill/test_forks.py",
    "kill/test_session_forks.py",
    "kill/test_outages.py",
    "kill/test_workers.py",
    "temporal/test_kills.py",
    "kill/test_matrix_elsewhere.py",
    "kill/test_matrix.py",
    "kill/test_two_owners.py",
    "sessions/test_session_lives.py",
    "sessions/test_session_scale.py",
    "ground/test_benchmark.py",
    "promises/test_promises.py",
    "planner/test_stuck_sagas.py",
    "temporal/test_cli.py",
    "kill/test_sessions.py",
    "kill/test_guards.py",
    "kill/test_growing.py",
    "kill/test_failover.py",
    "cli/test_worker.py",
    "cli/test_transcripts.py",
    "cli/test_mistakes.py",
    "adapters/test_examples.py",
    "core/test_simulation.py",
    "core/test_mutants.py",
    "core/test_fork.py",
)
_PLACES = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of which nothing would run is not imported."""
    tier = config.getoption("--tier")
    if tier is None or collection_path.suffix != ".py" or not collection_path.is_relative_to(tiers.TESTS):
        return None
    return None if tiers.imported(tier, _name(collection_path)) else True


def _choose(tier: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        name = item.path.relative_to(tiers.TESTS).as_posix()
        case = item.nodeid.partition("::")[2]
        marks = [mark.name for mark in item.iter_markers()]
        if is_hypothesis_test(getattr(item, "obj", None)):
            marks.append(tiers.PROPERTY)
        wanted = tiers.runs(tier, name, case, marks)
        (chosen if wanted else others).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
    items[:] = chosen


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (tier := config.getoption("--tier")) is not None:
        _choose(tier, config, items)
    # The others come in an order that mixes those that wait (on clusters, leases, Temporal) with those that calculate.
    items.sort(key=lambda item: (_PLACES.get(item.path, len(LONGEST)), crc32(item.path.name.encode())))
    if config.getoption("--long"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="a long form: --long"))


@pytest.fixture(autouse=True)
def nothing_left_in_the_process() -> Iterator[None]:
    """No test meets what another one left in the engine's tables.

    These are the threads that are still at work for a call, by its key (many tests make their calls under one key), and
    the named stores in memory (many tests choose the same name).
    """
    yield
    for module, table in (("tools.invoke", "_LEFT"), ("stores.in_memory", "_SHARED")):
        loaded = sys.modules.get(f"saga_engine.{module}")  # most tests need neither
        if loaded is not None:
            getattr(loaded, table).clear()


@pytest.fixture
def models_return_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine asks a model that could not be reached again after milliseconds, where a test does not wait for that."""
    monkeypatch.setattr("saga_engine.core.asking_later.DELAYS_MS", (1, 1, 1))


@pytest.fixture(autouse=True)
def no_server_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that kills its processes leaves their embedded server running, as it should: end it with the test's folder."""
    folder: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is None or not folder.exists():
        return
    for record in folder.rglob("server.json"):
        pid = json.loads(record.read_text())["pid"]
        if pid is None:  # killed before it had started one
            continue
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cwd").readlink().is_relative_to(folder):
                os.kill(pid, signal.SIGKILL)
