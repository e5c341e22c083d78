"""``make demo``: the article's plan under good and bad luck, with the outside world shown and checked after each scene.

Everything happens in a temporary folder, with the embedded store, no key and no network. The folder stays for the
console, and the last lines say how to open it. The exit code is 1 if the engine's report and the outside world ever
disagree.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from world import World  # noqa: E402 - this folder is no package

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PLAN = HERE / "travel_request_001.json"
#: How long a command may take before the demo gives up, in seconds. None of them comes near it.
PATIENCE_S = 60.0


class Disagreement(Exception):
    """The engine says one thing and the world another."""


class Stage:
    """One scene: a fresh outside world, and the ``saga`` command beside it."""

    def __init__(self, folder: Path, number: int, title: str) -> None:
        self.saga_id = f"travel_request_{number:03}"
        self.world = World(folder / f"world-{number}.db")
        self.env = os.environ | {
            "SAGA_STORE": f"embedded://{folder / 'store'}",
            "SAGA_TOOLS": str(HERE / "tools.py"),
            "BOOKING_WORLD": str(self.world.path),
        }
        self.env.pop("BOOKING_HOLD", None)
        say(f"\n{bold(f'{number}. {title}')}")

    def run(self, *args: str, expect: int, shown: str | None = None) -> Any:
        """Run a ``saga`` command with ``--json`` and show it; returns its document. Checks the exit code."""
        say(f"   $ saga {shown or ' '.join(args)}")
        command = [sys.executable, "-m", "saga_engine", *args, "--json"]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if done.returncode != expect:
            raise Disagreement(f"exit code {done.returncode} instead of {expect}:\n{done.stdout}\n{done.stderr}")
        return json.loads(done.stdout)

    def submit(self, *, expect: int) -> Any:
        """Submit the article's plan under this scene's id."""
        return self.run("submit", str(PLAN), "--id", self.saga_id, expect=expect, shown=f"submit {PLAN.name}")

    def show_report(self, body: Mapping[str, Any]) -> None:
        """What the engine says."""
        steps = ", ".join(f"{step['name']} {step['status']}" for step in body["steps"])
        say(f"   engine   {bold(body['status'])}: {steps}")
        lists = {name: ids for name, ids in body["report"].items() if ids and name != "clean"}
        if body["report"]["clean"] is False or lists:
            say(f"   report   {lists or 'nothing left'}, clean: {str(body['report']['clean']).lower()}")

    def show_world(self) -> None:
        """What the outside world says."""
        rows = [f"{row['item']} {row['ref']} ({row['state']})" for row in self.world.bookings(None)]
        say(f"   world    {', '.join(rows) or 'nothing booked'}")

    def check(self, body: Mapping[str, Any], *, status: str, standing: list[str]) -> None:
        """The engine's word and the world's must both be what this scene expects, and the same."""
        if body["status"] != status:
            raise Disagreement(f"the saga is {body['status']}, not {status}")
        stands = sorted(row["item"] for row in self.world.bookings())
        if stands != sorted(standing):
            raise Disagreement(f"the world holds {stands}, not {sorted(standing)}")
        booked = {row["item"] for row in self.world.bookings()}
        for step, item in zip(body["steps"], ("CA1234", "Hilton"), strict=True):
            if (step["status"] == "SUCCEEDED") != (item in booked):
                raise Disagreement(
                    f"{step['name']} is {step['status']}, and {item} is {'' if item in booked else 'not '}booked"
                )
        say(f"   {green('agreed')}   report and world say the same")


def success(folder: Path) -> None:
    """All goes well."""
    stage = Stage(folder, 1, "All goes well")
    stage.show_world()
    body = stage.submit(expect=0)
    stage.show_report(body)
    stage.show_world()
    stage.check(body, status="COMPLETED", standing=["CA1234", "Hilton"])


def hotel_full(folder: Path) -> None:
    """The second step fails, so the first is undone."""
    stage = Stage(folder, 2, "The hotel is full: the flight is cancelled")
    stage.world.set_left("hotel", "Hilton", 0)
    stage.show_world()
    body = stage.submit(expect=3)
    stage.show_report(body)
    stage.show_world()
    stage.check(body, status="COMPENSATED", standing=[])


def killed(folder: Path) -> None:
    """The process dies after the hotel has booked and before anybody knows."""
    stage = Stage(folder, 3, "kill -9 while the hotel's answer is on its way, then resume")
    stage.show_world()
    say("   $ saga submit travel_request_001.json")
    held = Path(f"{stage.world.path}.held")
    command = [sys.executable, "-m", "saga_engine", "submit", str(PLAN), "--id", stage.saga_id]
    process = subprocess.Popen(
        command,
        env=stage.env | {"BOOKING_HOLD": "hotel_api"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(held.exists, process)
    finally:
        process.kill()
        process.communicate()
    held.unlink()
    say(f"   $ kill -9 {process.pid}")
    if process.returncode != -signal.SIGKILL:
        raise Disagreement(f"the process ended by itself with {process.returncode}")
    body = stage.run("show", stage.saga_id, expect=8, shown=f"show {stage.saga_id}")
    stage.show_report(body)
    stage.show_world()
    stage.run("resume", "--all", expect=0)
    body = stage.run("show", stage.saga_id, expect=0, shown=f"show {stage.saga_id}")
    stage.show_report(body)
    stage.show_world()
    stage.check(body, status="COMPLETED", standing=["CA1234", "Hilton"])
    asked = [row for row in stage.world.requests() if row["kind"] == "hotel"]
    if len(asked) != 1:
        raise Disagreement(f"the hotel was asked {len(asked)} times")
    say("            the hotel was asked for a room once: the probe found the booking")


def desk_closed(folder: Path) -> None:
    """The undo fails for good, so a person is told, and says what was done."""
    stage = Stage(folder, 4, "The undo fails, too: a person is asked")
    stage.world.set_left("hotel", "Hilton", 0)
    stage.world.close_desk("flight", "cancel")
    body = stage.submit(expect=4)
    stage.show_report(body)
    stage.show_world()
    question = body["questions"][0]
    say(f"   asked    step {question['step_id']}: {question['kind']} ({question['error']['message']})")
    order = stage.world.bookings()[0]["ref"]
    say(f"            Somebody telephones the airline, which cancels {order}.")
    stage.world.open_desk("flight", "cancel")
    stage.world.cancel("flight", "telephone call 1", ref=order)
    body = stage.run("resolve", stage.saga_id, "1", "undone", "--by", "kim", expect=3)
    stage.show_report(body)
    stage.show_world()
    stage.check(body, status="COMPENSATED", standing=[])


def agent(folder: Path) -> None:
    """The coordinator inside a program."""
    stage = Stage(folder, 5, "An agent with the coordinator inside; its first choice of hotel is full")
    say("   $ python agent.py --full Hilton")
    command = [sys.executable, str(HERE / "agent.py"), "--store", stage.env["SAGA_STORE"], "--full", "Hilton"]
    done = subprocess.run(command, env=stage.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    say("\n".join(f" {line}" for line in done.stdout.rstrip().splitlines()))
    if done.returncode != 0:
        raise Disagreement(f"the agent gave up:\n{done.stderr}")
    stage.show_world()
    kinds = sorted(row["kind"] for row in stage.world.bookings())
    items = {row["item"] for row in stage.world.bookings()}
    if kinds != ["flight", "hotel", "payment"] or "Hilton" in items:
        raise Disagreement(f"the world holds {kinds} ({items})")
    say(f"   {green('agreed')}   one flight, one room and one payment stand")


def wait_until(true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Look until it is so; a process that ends first, or takes too long, is a failure."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        if process.poll() is not None:
            raise Disagreement(f"the command ended early with {process.returncode}")
        if time.monotonic() > end:
            raise Disagreement("the command took too long")
        time.sleep(0.02)


def say(text: str) -> None:
    """Print at once, so that one can watch."""
    print(text, flush=True)


def bold(text: str) -> str:
    """For a terminal."""
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else text


def green(text: str) -> str:
    """For a terminal."""
    return f"\x1b[32m{text}\x1b[0m" if sys.stdout.isatty() else text


def main() -> int:
    """All scenes; returns the exit code."""
    say("The plan books a flight and a hotel. It may fail anywhere; see what is left each time.")
    folder = Path(tempfile.mkdtemp(prefix="saga-demo-"))
    try:
        for scene in (success, hotel_full, killed, desk_closed, agent):
            scene(folder)
    except Disagreement as error:
        say(f"\n   DISAGREED: {error}")
        return 1
    say("\nReport and world agreed in every scene. To see these sagas in the console:")
    say(f"   $ {sys.executable} -m saga_engine serve --auth none --store embedded://{folder / 'store'}")
    say(f"   $ rm -r {folder}   (when you have seen enough)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
