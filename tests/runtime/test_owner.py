"""Who is provably dead."""

from __future__ import annotations

import os
import subprocess
import sys

from saga_engine.runtime import owner


def test_a_name_survives_the_journey() -> None:
    """What is written into a head can be read back."""
    me = owner.this_process()
    assert owner.parse(str(me)) == me


def test_this_process_is_not_dead() -> None:
    """Nobody takes a saga from a running process of this machine."""
    assert not owner.provably_dead(str(owner.this_process()))


def test_a_process_that_has_ended_is_dead() -> None:
    """Same boot, same namespace, and no such process any more."""
    code = "from saga_engine.runtime.owner import this_process; print(this_process())"
    name = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert owner.provably_dead(name)


def test_a_pid_that_was_used_again_is_another_process() -> None:
    """The start time tells: this pid runs, but it is not the process that was named."""
    me = owner.this_process()
    assert owner.provably_dead(str(me._replace(start="1")))


def test_when_in_doubt_nobody_is_dead() -> None:
    """Another boot, another namespace, another host's unknown, or no name at all: the lease decides."""
    me = owner.this_process()._replace(pid=os.getpid() + 0, start="1")
    for other in (
        me._replace(boot="another"),
        me._replace(pidns="another"),
        me._replace(boot=""),
        me._replace(start="0"),
    ):
        assert not owner.provably_dead(str(other))
    assert not owner.provably_dead("somebody")


def test_a_zombie_is_dead() -> None:
    """A killed child that nobody has waited for can do nothing any more."""
    code = "from saga_engine.runtime.owner import this_process; print(this_process(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    assert not owner.provably_dead(name)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert owner.provably_dead(name)
    child.communicate()
