"""The faults themselves: told by a text, they come true at the point that was named, once, and nowhere else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from saga_engine.errors import SettingInvalid, StoreUnavailable
from saga_engine.ports import Creation, Entry
from saga_engine.stores import open_store
from saga_engine.testing.faults import Fault, Faults, FaultyStore
from tests.support.servers import until

CHILD = """
from saga_engine.testing.faults import Faults
faults = Faults.from_environment()
for number in (1, 2, 3):
    with faults.at("call"):
        print(number, flush=True)
"""


def child(fault: str) -> subprocess.Popen[str]:
    environ = os.environ | {"SAGA_FAULT": fault}
    return subprocess.Popen([sys.executable, "-c", CHILD], env=environ, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("fault", "seen"), [("call:2:before", ["1"]), ("call:2:after", ["1", "2"])])
def test_a_process_dies_where_it_was_told(fault: str, seen: list[str]) -> None:
    """*Before*: it has not happened. *After*: it has."""
    process = child(fault)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out.split()) == (-signal.SIGKILL, seen)


def test_a_process_freezes_where_it_was_told_and_goes_on_when_thawed(tmp_path: Path) -> None:
    """A pause touches its file, stops everything, and is over with SIGCONT."""
    reached = tmp_path / "reached"
    process = child(f"call:2:after:pause:{reached}")
    until(reached.exists, "the pause")
    until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "SIGSTOP")
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out.split()) == (0, ["1", "2", "3"])


@pytest.mark.parametrize(
    "text", ["append", "append:0:before", "append:x:before", "append:1:during", ":1:after", "a:1:after:burn"]
)
def test_what_means_nothing_is_refused(text: str) -> None:
    """A typing error must not make a test that injects nothing."""
    with pytest.raises(SettingInvalid):
        Faults(text)


@pytest.mark.parametrize("text", ["append:3:before", "call:1:after:raise", "append:1:after:pause:/tmp/a:b"])
def test_a_fault_is_its_text(text: str) -> None:
    """What a fault prints can be given to a child."""
    assert str(Fault.parse(text)) == text


@pytest.mark.parametrize(("when", "length"), [("before", 1), ("after", 2)])
async def test_a_store_that_raises(when: str, length: int) -> None:
    """The n-th verb fails, before or after the inner store has done its work; the counts tell what was reached."""
    faults = Faults(f"append:2:{when}:raise")
    store = FaultyStore(open_store("memory://"), faults)
    await store.open()
    await store.open_lease("A", 60_000)
    await store.append("A", [Entry("s", 0, 0, [b"r0"], "RUNNING", creation=Creation("d", owned=True))])
    with pytest.raises(StoreUnavailable):
        await store.append("A", [Entry("s", 1, 1, [b"r1"])])
    assert len(await store.read("s")) == length
    assert [str(fault) for fault in faults.fired] == [f"append:2:{when}:raise"]
    assert faults.counts["append"] == 2
    await store.close()


def test_after_comes_true_when_what_happens_fails() -> None:
    """A tool that says no has also been called: the point after it exists."""
    noted: list[Fault] = []
    faults = Faults("call:1:after:note", actions={"note": noted.append})
    with pytest.raises(LookupError), faults.at("call"):
        raise LookupError
    assert noted == faults.fired == [Fault("call", 1, "after", "note")]


def test_each_verb_of_the_port_is_a_point() -> None:
    """A verb that the port gains must not slip past the faults."""
    from saga_engine.ports import Store

    verbs = {name for name, value in vars(Store).items() if callable(value) and not name.startswith("_")}
    assert verbs <= set(vars(FaultyStore))
