"""Who is provably dead."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from saga_engine.execution import owner


def ended() -> str:
    """The name of a process that has ended, and that somebody has waited for."""
    code = "from saga_engine.execution.owner import this_process; print(this_process())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_name_survives_the_journey() -> None:
    """What is written into a head can be read back."""
    me = owner.this_process()
    assert owner.parse(str(me)) == me


def test_this_process_is_not_dead() -> None:
    """Nobody takes a saga from a running process of this machine."""
    assert not owner.provably_dead(str(owner.this_process()))


def test_a_process_that_has_ended_is_dead() -> None:
    """Same boot, same namespace, and no such process any more."""
    assert owner.provably_dead(ended())


def test_a_start_time_that_differs_proves_nothing() -> None:
    """Each time namespace has its own; a pid that was used again is left to the lease."""
    me = owner.this_process()
    assert not owner.provably_dead(str(me._replace(start="1")))


def test_when_in_doubt_nobody_is_dead() -> None:
    """Another host, boot or namespace, one that is unknown, or no name at all: the lease decides."""
    gone = owner.parse(ended())
    assert gone is not None
    for other in (
        gone._replace(host="another"),
        gone._replace(boot="another"),
        gone._replace(pidns="another"),
        gone._replace(boot=""),
        gone._replace(pid=0),
    ):
        assert not owner.provably_dead(str(other))
    assert not owner.provably_dead("somebody")


def test_a_zombie_is_dead() -> None:
    """A killed child that nobody has waited for can do nothing any more."""
    code = "from saga_engine.execution.owner import this_process; print(this_process(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    assert not owner.provably_dead(name)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert owner.provably_dead(name)
    child.communicate()


#: Becomes another user in a mount namespace whose /proc hides the processes of others, and compares two owners.
HIDDEN = """
mount -t proc -o hidepid=2 proc /proc || exit 77
setpriv --reuid=65534 --regid=65534 --clear-groups "$0" -c '' || exit 77
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$0" -c '
import sys
from pathlib import Path
from saga_engine.execution.owner import parse, provably_dead
alive, gone = sys.argv[1:]
print(Path(f"/proc/{parse(alive).pid}").exists(), provably_dead(alive), provably_dead(gone))' "$@"
"""


#: The same as one other user, of whose own processes one lets nobody look at it (as those do that guard secrets).
UNSEEN = """
mount -t proc -o hidepid=2 proc /proc || exit 77
setpriv --reuid=65534 --regid=65534 --clear-groups "$0" -c '' || exit 77
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$0" -c '
import ctypes, os
from pathlib import Path
from saga_engine.execution.owner import provably_dead, this_process
told, freed = os.pipe(), os.pipe()
pid = os.fork()
if not pid:
    name = str(this_process())
    ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
    os.write(told[1], name.encode())
    os.read(freed[0], 1)
    os._exit(0)
name = os.read(told[0], 1000).decode()
print(Path(f"/proc/{pid}").exists(), provably_dead(name))
os.write(freed[1], b"x")
os.waitpid(pid, 0)
print(provably_dead(name))'
"""

needs_a_proc = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs to mount a /proc of its own"
)


def hidden(script: str, *args: str) -> list[str]:
    """What a script says whose /proc hides the processes of others."""
    command = ["unshare", "--mount", "sh", "-c", script, sys.executable, *args]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(owner.__file__).parents[2])}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if ran.returncode == 77 or "unshare failed" in ran.stderr:
        pytest.skip("this machine mounts no /proc of its own, or this Python is for its owner only")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


@needs_a_proc
def test_a_process_that_is_hidden_is_not_dead() -> None:
    """With `hidepid` the process of another user is in no /proc: only the kernel's ESRCH proves that it is gone."""
    assert hidden(HIDDEN, str(owner.this_process()), ended()) == ["False", "False", "True"]


@needs_a_proc
def test_a_process_of_the_same_user_that_cannot_be_seen_is_not_dead() -> None:
    """It can be signalled and is in no /proc: then it is no zombie either, as far as anybody can tell."""
    assert hidden(UNSEEN) == ["False", "False", "True"]
