"""The benchmark: this engine, the floor and the peers in turns on one machine; figures as JSON.

Each turn of each entrant is a process of its own. In each round the floor and the engine come first and last, the
peers in between, in turned order; a figure is the median over the rounds, a ratio the median of the ratios within a
round, because disks and machines have fast and slow spells. Before each turn the disk is measured: one append of 300
bytes with fsync at a time. The peers are installed under ``BENCH_HOME`` (by default ``.bench``), one environment each;
a peer that cannot be had or that fails is shown with its reason.

    python dev/benchmarks/run.py [--peers all|none|NAME,NAME] [--rounds N] [--short] [--loop uvloop] [--json FILE]
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from entrants import BY_NAME, ENGINE, FLOOR, PEERS, Entrant
from installing import Missing, python_of
from servers import postgres, valkey
from turn import Turn

HERE = Path(__file__).parent
_ROUND_LIMIT_S = 120
_TASK_LIMIT_S = 400
_YARDSTICK_S = 0.3
#: Steps of one saga, for its growth; the short form takes the first two.
_LENGTHS = [10, 100, 1000, 10000]
#: What the engine alone is asked, with the script that measures it.
_LIVES = {
    "resume": "measure_recovery.py",
    "take_over": "measure_recovery.py",
    "memory": "measure_memory.py",
    "workers": "measure_workers.py",
}
#: Figures that are compared between the engine and the others.
COMPARED = ("steps_per_s", "compensating_sagas_per_s", "sequential_ms", "cpu_s_per_1000_steps")


def yardstick(folder: Path, seconds: float = _YARDSTICK_S) -> float:
    """Appends of 300 bytes a second, each on disk before the next."""
    folder.mkdir(parents=True, exist_ok=True)
    path, block, count = folder / "yardstick", b"x" * 300, 0
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        os.write(handle, block)
        os.fdatasync(handle)
        count += 1
    rate = count / (time.perf_counter() - begun)
    os.close(handle)
    path.unlink()
    return rate


class Benchmark:
    """One run: what was asked, where it happens, and what was found so far."""

    def __init__(self, args: argparse.Namespace, home: Path) -> None:
        self._args = args
        self._home = home
        self._data = home / "data"
        self._stack = ExitStack()
        self._postgres: dict[str, Any] | None = None
        self._count = 0
        self._begun = time.monotonic()
        self.found: dict[str, dict[str, Any]] = {}
        self.lives: dict[str, Any] = {}
        self.yardstick: list[float] = []

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._begun:6.1f} s] {text}", flush=True)

    def run(self, peers: list[Entrant]) -> None:
        """Everything, one thing at a time."""
        with self._stack:
            for entrant in (FLOOR, ENGINE, *peers):
                self._enter(entrant)
            for number in range(self._args.rounds):
                between = peers[number % max(len(peers), 1) :] + peers[: number % max(len(peers), 1)]
                for entrant in (FLOOR, ENGINE, *between, ENGINE, FLOOR):
                    self._round(entrant, number)
            for entrant in (FLOOR, ENGINE, *peers):
                self._growth(entrant)
            for task, script in _LIVES.items():
                if (HERE / script).exists():
                    self._life(task, script)
            self.yardstick.append(yardstick(self._data))

    # --- turns ---------------------------------------------------------------------------------------------------

    def _enter(self, entrant: Entrant) -> None:
        """Have it installed and its server running, or know why not."""
        found = self.found[entrant.name] = {
            "title": entrant.title,
            "durability": entrant.durability,
            "durable": entrant.durable,
            "rounds": [],
        }
        try:
            python_of(self._home, entrant, self.say)
            if entrant.server == "postgres" and self._postgres is None:
                self._postgres = self._stack.enter_context(postgres(self._data / "postgres"))
        except (Missing, OSError) as error:
            self._drop(found, entrant, str(error))

    def _drop(self, found: dict[str, Any], entrant: Entrant, reason: str) -> None:
        found["missing"] = reason
        self.say(f"{entrant.name}: omitted: {reason}")

    def _round(self, entrant: Entrant, number: int) -> None:
        found = self.found[entrant.name]
        if "missing" in found:
            return
        known = [turn["at_once"] for turn in found["rounds"]]
        self.yardstick.append(yardstick(self._data))
        try:
            got = self._turn(
                entrant,
                _ROUND_LIMIT_S,
                task="round",
                levels=known[:1] or list(entrant.levels[-1:] if self._args.short else entrant.levels),
                seconds=self._args.seconds,
            )
        except Missing as error:
            self._drop(found, entrant, str(error))
            return
        found["versions"] = got.pop("versions")
        found["rounds"].append({"round": number, "disk_appends_per_s": self.yardstick[-1], **got})
        self.say(
            f"round {number + 1}, {entrant.name}: {got['steps_per_s']:.0f} steps/s with {got['at_once']} at once, "
            f"{got['sequential_ms']:.2f} ms a saga"
        )

    def _growth(self, entrant: Entrant) -> None:
        found = self.found[entrant.name]
        if "missing" in found:
            return
        lengths = _LENGTHS[:2] if self._args.short else _LENGTHS
        ours = entrant in (FLOOR, ENGINE)
        try:
            got = self._turn(
                entrant,
                _TASK_LIMIT_S,
                task="growth",
                lengths=lengths,
                limit_s=60.0 if ours else self._args.growth_limit,
                passes=3 if ours and not self._args.short else 1,
            )
        except Missing as error:
            found["growth_missing"] = str(error)
            self.say(f"growth, {entrant.name}: omitted: {error}")
            return
        found["ms_per_step_by_length"] = got["ms_per_step"]
        if got["resume_ms"]:
            found["resume_ms_by_length"], found["resume"] = got["resume_ms"], entrant.resume
        shown = ", ".join(f"{n}: {'-' if ms is None else f'{ms:.3f}'}" for n, ms in got["ms_per_step"].items())
        self.say(f"growth, {entrant.name}: ms a step in a saga of {shown}")

    def _life(self, task: str, script: str) -> None:
        argument = "short" if self._args.short else ""
        try:
            got = self._turn(ENGINE, _TASK_LIMIT_S, script=script, task=task, argument=argument)
        except Missing as error:
            self.lives[task] = {"missing": str(error)}
            self.say(f"{task}: omitted: {error}")
            return
        self.lives[task] = got
        self.say(f"{task}: {json.dumps(got)}")

    def _turn(
        self, entrant: Entrant, within_s: float, *, task: str, script: str | None = None, **asked: Any
    ) -> dict[str, Any]:
        """Run one turn in a process of its own. Raises ``Missing`` with what went wrong."""
        self._count += 1
        place = self._data / f"turn-{self._count}"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        out, log = self._data / "found.json", self._data / "turn.log"
        out.unlink(missing_ok=True)
        asked.setdefault("argument", entrant.argument)
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, place, ignore_errors=True)
            stack.callback(_end_servers, place)
            server: dict[str, Any] = {}
            if entrant.server == "postgres":
                server = self._postgres or {}
            elif entrant.server == "valkey":
                server = stack.enter_context(valkey(self._data / "valkey"))
            turn = Turn(task=task, place=str(place), out=str(out), server=server, **asked)
            command = [str(python_of(self._home, entrant)), str(HERE / (script or entrant.script)), turn.to_json()]
            self._process(command, log, within_s)
        if not out.exists():
            raise Missing(_last_words(log))
        return json.loads(out.read_text())

    def _process(self, command: list[str], log: Path, within_s: float) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(HERE),
            "BENCH_HOME": str(self._home),
            "SAGA_BENCH_LOOP": self._args.loop,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired as error:
            raise Missing(f"it did not end within {within_s:.0f} s") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with whatever it may have left behind
            process.wait()
        if process.returncode != 0:
            raise Missing(_last_words(log))


def _end_servers(place: Path) -> None:
    """A turn that was killed leaves its embedded servers behind."""
    for record in place.rglob("server.json"):
        found = json.loads(record.read_text())
        command = Path(f"/proc/{found['pid']}/cmdline")
        if command.exists() and found["socket"].encode() in command.read_bytes():
            os.kill(found["pid"], signal.SIGKILL)


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "it said nothing"


# --- folding -------------------------------------------------------------------------------------------------------


def medians(found: dict[str, dict[str, Any]]) -> None:
    """Add to each entrant the medians over its rounds."""
    for entrant in found.values():
        rounds = entrant["rounds"]
        if rounds:
            entrant["median"] = {
                what: statistics.median(turn[what] for turn in rounds) for what in rounds[0] if what != "round"
            }


def ratios(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The engine against each other entrant: the median of the ratios within the rounds."""
    ours = _by_round(found[ENGINE.name]["rounds"])
    result = {}
    for name, entrant in found.items():
        theirs = _by_round(entrant["rounds"])
        shared = ours.keys() & theirs.keys()
        if name != ENGINE.name and shared:
            result[name] = {
                what: statistics.median(ours[number][what] / theirs[number][what] for number in shared)
                for what in COMPARED
            }
    return result


def _by_round(turns: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """What was found in each round; the floor and the engine have two turns in it."""
    numbers = {turn["round"] for turn in turns}
    return {
        number: {what: statistics.fmean(turn[what] for turn in turns if turn["round"] == number) for what in COMPARED}
        for number in numbers
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "cpu": cpu,
        "memory_gib": round(memory / 2**30),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
    }


def show(result: dict[str, Any]) -> None:
    """The figures as a table for the terminal."""
    print(f"\n{'':24}{'steps/s':>10}{'comp. sagas/s':>15}{'ms/saga':>10}{'CPU s/1000':>12}{'engine is':>12}")
    for name, entrant in result["entrants"].items():
        if "median" not in entrant:
            print(f"{name:24}omitted: {entrant['missing']}")
            continue
        row = entrant["median"]
        ratio = result["ratios"].get(name, {}).get("steps_per_s")
        print(
            f"{name:24}{row['steps_per_s']:10.0f}{row['compensating_sagas_per_s']:15.0f}{row['sequential_ms']:10.2f}"
            f"{row['cpu_s_per_1000_steps']:12.3f}{'' if ratio is None else f'{ratio:.2f} x':>12}"
        )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="all", help="all, none, or names: " + ", ".join(one.name for one in PEERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.5, help="the duration of each measurement in a round")
    parser.add_argument(
        "--growth-limit", type=float, default=10.0, help="the maximum number of seconds for one length of saga"
    )
    parser.add_argument(
        "--loop", choices=("asyncio", "uvloop"), default="asyncio", help="the event loop of the floor and of the engine"
    )
    parser.add_argument("--short", action="store_true", help="a smoke test, as in CI")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "latest.json")
    args = parser.parse_args()
    if args.short:
        args.rounds, args.seconds = 1, 0.2
    return args


def _chosen(names: str) -> list[Entrant]:
    if names in ("all", "none"):
        return list(PEERS) if names == "all" else []
    wanted = names.split(",")
    unknown = [name for name in wanted if BY_NAME.get(name) not in PEERS]
    if unknown:
        sys.exit(f"no such peer: {', '.join(unknown)}; there are {', '.join(one.name for one in PEERS)}")
    return [BY_NAME[name] for name in wanted]


def main() -> None:
    """Parse, run, write."""
    args = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped
    home = Path(os.environ.get("BENCH_HOME") or HERE.parents[1] / ".bench").resolve()
    peers = _chosen(args.peers)
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another benchmark runs in {home}; two at a time measure each other")
        benchmark = Benchmark(args, home)
        benchmark.run(peers)
    medians(benchmark.found)
    result = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "loop": args.loop,
        "rounds": args.rounds,
        "seconds": args.seconds,
        "disk_appends_per_s": benchmark.yardstick,
        "entrants": benchmark.found,
        "ratios": ratios(benchmark.found),
        "lives": benchmark.lives,
    }
    show(result)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(result, indent=1) + "\n")
    benchmark.say(f"written to {args.json}")


if __name__ == "__main__":
    main()
