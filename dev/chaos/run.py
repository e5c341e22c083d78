"""``python -m dev.chaos``: runs many sagas under injected faults, then checks every one of them.

Workers run random plans against an external system with a ledger, while an injector kills and freezes processes, cuts
and delays connections, changes clocks, fills the disk and exhausts the memory. When all sagas have ended, the ledger,
report and journal of each are compared (``verdict``). The exit code is 1 if any law is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from dev.chaos import agent, customer, operator, plans, stuck, ticking, verdict, worker, world
from dev.chaos.injector import FAULTS, Child, Injector, draw
from dev.chaos.line import BadLine
from dev.chaos.stops import Stopper, Window
from dev.chaos.store import Disk, StoreServer, die_with_parent, until
from dev.chaos.tools import make_tools
from saga_engine import Coordinator, SagaError
from saga_engine.core import transitions as t
from saga_engine.errors import StoreUnavailable

_log = logging.getLogger("chaos")

#: How long the submitter waits for the store; no fault lasts that long.
_PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.2
_SUBMIT_AT_ONCE: Final = 100
#: If no saga ends for this long after the last fault, the remaining ones are stuck.
_STUCK_S: Final = 90.0
_TELL_S: Final = 10.0
_PRIVATE: Final = "SAGA_CHAOS_PRIVATE"
_SHOWN: Final = 20
_SHARES: Final = range(world.SHARES)


def main() -> None:
    """Parse, run, print; exit with 1 on any violation or failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sagas", type=int, default=5000)
    parser.add_argument("--sessions", type=int, default=None, help="sessions of agents (default: one per 20 sagas)")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=None, help="the seed of plans and faults (default: random)")
    parser.add_argument("--faults", type=int, default=None, help="the number of faults (default: one per 150 sagas)")
    parser.add_argument("--lease", type=float, default=2.0, help="the lease of a process, in seconds")
    parser.add_argument(
        "--at-once", type=int, default=64, help="the maximum number of sagas that a worker runs at a time"
    )
    parser.add_argument(
        "--backlog", type=int, default=1500, help="the maximum number of submitted sagas that have not ended"
    )
    parser.add_argument("--server", help="the program of a Redis or Valkey server (default: the embedded store's)")
    parser.add_argument(
        "--disk", choices=("auto", "plain"), default="auto", help="auto: a small tmpfs if possible; plain: no mount"
    )
    parser.add_argument("--disk-mb", type=int, default=6000, help="the size of the tmpfs")
    parser.add_argument(
        "--longest", type=float, default=3600.0, help="after so many seconds the sagas that have not ended are stuck"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and ledgers")
    parser.add_argument(
        "--sabotage", choices=world.SABOTAGE, help="break a promise of the external system; the run must detect it"
    )
    args = parser.parse_args()
    args.seed = Random().randrange(1 << 31) if args.seed is None else args.seed
    args.faults = max(len(FAULTS), args.sagas // 150) if args.faults is None else args.faults
    args.sessions = args.sagas // 20 if args.sessions is None else args.sessions
    if args.disk == "auto":
        _mount_in_private()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("saga_engine").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="saga-chaos-"))
    try:
        report = asyncio.run(Run(args, folder).run())
    finally:
        if args.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    show(report)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))
    sys.exit(1 if report["breaches"] or report["wrong"] or report["stuck"] else 0)


def _mount_in_private() -> None:
    """Continue in a mount namespace of our own, if that is permitted: its mounts end with this process."""
    unshare = shutil.which("unshare")
    if os.environ.get(_PRIVATE) or os.geteuid() != 0 or unshare is None:
        return
    if subprocess.run([unshare, "--mount", "true"], check=False, capture_output=True).returncode == 0:
        os.environ[_PRIVATE] = "yes"
        os.execv(unshare, [unshare, "--mount", sys.executable, "-m", "dev.chaos", *sys.argv[1:]])


class Quiet:
    """Whether everything has ended: two looks agree about it, which began after everybody had finished.

    Whoever was at work until after a look may have begun a saga that it does not count. A look reads the store part by
    part: one saga may begin in a part that was read, because of another, which ends before its own is read.
    """

    def __init__(self) -> None:
        self._known = -1

    def after(self, known: int, *, finished: bool) -> bool:
        """Whether it has, after another look: how many sagas it saw, and whether all of them had ended."""
        before, self._known = self._known, known if finished else -1
        return finished and before == known


class Run:
    """One run: its processes, its sagas, and their results."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args = args
        self._folder = folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            [
                "dev.chaos.worker",
                "dev.chaos.operator",
                "dev.chaos.agent",
                "dev.chaos.customer",
                "dev.chaos.verdict",
                "dev.chaos.warm",
            ]
        )
        self._dice = Random(f"{args.seed}:clocks")
        self._clocks = 0
        self._submitted = 0
        self._again = 0
        self._known = 0
        self._ticks: list[str] = []
        self._stuck: list[str] = []
        self._ended = 0
        self._ended_at_s = time.monotonic()

    async def run(self) -> dict[str, Any]:
        """Run everything and return the report."""
        args, begun_s = self._args, time.monotonic()
        _log.info(
            "seed %d: %d sagas, %d sessions, %d workers, %d faults",
            *(args.seed, args.sagas, args.sessions, args.workers, args.faults),
        )
        disk = Disk(
            self._folder / "disk", args.disk_mb, mount=os.environ.get(_PRIVATE) == "yes" and args.disk == "auto"
        )
        if not disk.mounted:
            _log.info("no tmpfs may be mounted here: the full disk is a limit on the size of the server's files")
        server = StoreServer(self._folder, disk, self._args.server)
        try:
            await server.start()
            begun_ms = _clock_ms(server)
            async with self._world(), self._lines(server) as lines:
                async with Coordinator.open(server.url, make_tools(), patience_s=_PATIENCE_S) as coordinator:
                    injector = self._injector(server, lines, coordinator)
                    load = await self._play(coordinator, injector)
                await asyncio.sleep(args.lease)  # a process that was just resumed may still do harm
                outside = await world.Outside.ask({"op": "look"})
                while outside["pending"]:  # pending requests may still do harm
                    await asyncio.sleep(_LOOK_S)
                    outside = await world.Outside.ask({"op": "look"})
                driven_s = time.monotonic() - begun_s
                for child in injector.children():
                    await child.end(signal.SIGKILL)
            found = await self._check(server, begun_ms, injector.stopper.windows)
            if self._ended == self._known and (load["queued"] or load["timed"]):
                injector.wrong.append(f"all sagas have ended, and the queue holds {load['queued'] + load['timed']}")
            return self._report(injector, server, disk, found, outside, driven_s, time.monotonic() - begun_s)
        finally:
            server.close()

    # --- set-up ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _world(self) -> AsyncIterator[None]:
        path = self._folder / "world"
        world.Outside.path = str(path)
        process = self._context.Process(target=serve_world, args=(self._folder, path, self._args.sabotage), daemon=True)
        process.start()
        await until(path.exists, "the external system to start")
        try:
            yield
            if process.exitcode is not None:
                raise RuntimeError(f"the external system ended by itself: exit code {process.exitcode}")
        finally:
            process.kill()
            process.join()

    @asynccontextmanager
    async def _lines(self, server: StoreServer) -> AsyncIterator[list[BadLine]]:
        """One connection for each worker, for the operator, for the agents, and for the customer."""
        lines = [BadLine(server.url) for _ in range(self._args.workers + 3)]
        for line in lines:
            await line.__aenter__()
        try:
            yield lines
        finally:
            for line in lines:
                await line.__aexit__(None, None, None)

    def _injector(self, server: StoreServer, lines: list[BadLine], coordinator: Coordinator) -> Injector:
        args = self._args
        workers = [
            Child(self._context, worker.main, partial(self._orders, number, lines[number].url))
            for number in range(args.workers)
        ]
        duties = operator.Duties(
            lines[-1].url, world.Outside.path, str(self._folder / "operator.log"), args.seed, args.lease
        )
        asked = Child(self._context, operator.main, lambda: duties, "the operator")
        learned = self._folder / "agents"
        learned.mkdir()
        todo = agent.Duties(
            url=lines[-2].url,
            world=world.Outside.path,
            log=str(self._folder / "agents.log"),
            folder=str(learned),
            seed=args.seed,
            sessions=args.sessions,
            lease_s=args.lease,
        )
        agents = Child(self._context, agent.main, lambda: todo, "the process of the agents", finishes=True, dies=True)
        errands = customer.Duties(
            lines[-3].url, world.Outside.path, str(self._folder / "customer.log"), args.seed, args.sagas, args.lease
        )
        served = Child(self._context, customer.main, lambda: errands, "the customer", finishes=True)
        stopper = Stopper(coordinator, Random(f"{args.seed}:stops"))
        injector = Injector(args.seed, args.lease, workers, asked, agents, served, lines, server, stopper)
        for child in injector.children():
            child.start()
        return injector

    def _orders(self, number: int, url: str) -> worker.Orders:
        wrong = self._dice.random() < 0.6
        self._clocks += wrong
        hour = 3600.0
        clock = (
            self._dice.choice((-1, 1)) * self._dice.choice((30, hour, 400 * hour)),
            self._dice.choice((0, 5, hour)),
        )
        return worker.Orders(
            url=url,
            world=world.Outside.path,
            log=str(self._folder / f"worker-{number}.log"),
            lease_s=self._args.lease,
            patience_s=self._dice.choice((1.0, 5.0, 10.0)),
            at_once=self._args.at_once,
            clock_s=clock if wrong else (0.0, 0.0),
        )

    # --- the run ---------------------------------------------------------------------------------------------------

    async def _play(self, coordinator: Coordinator, injector: Injector) -> dict[str, int]:
        """Submit, inject the faults as sagas end, then wait until all have ended."""
        args = self._args
        faults = draw(args.seed, args.faults)
        injected, told_s, begun_s = 0, time.monotonic(), time.monotonic()
        first_ms, paused = await ticking.begin(coordinator), False
        quiet = Quiet()
        submitting = asyncio.create_task(self._submit_all(coordinator))
        try:
            while True:
                finished = bool(self._ticks)
                load = await self._look(coordinator)
                injector.look_after()
                while injected < len(faults) and self._ended >= injected * args.sagas // (len(faults) + 1):
                    injector.inject(faults[injected])
                    injected += 1
                if submitting.done() and injector.finished and self._ended >= args.sagas + args.sessions:
                    if not paused:  # once: each change puts off the look at a tick whose worker died
                        paused = (await coordinator.schedules.pause(ticking.NAME)).paused
                    self._ticks = await ticking.ticks(coordinator, first_ms)
                # (One that has ended is queued until others have been told what follows: its teller may have died.)
                waits = self._ended < self._known or bool(load["queued"] or load["timed"])
                if quiet.after(self._known, finished=finished and not waits):
                    await injector.rest()
                    return load
                if submitting.done() and submitting.exception() is not None:
                    submitting.result()
                quiet_s = time.monotonic() - self._ended_at_s
                late = time.monotonic() - begun_s > args.longest  # others may end all the time: ticks, children
                if (quiet_s > _STUCK_S or late) and not injector.busy:
                    self._stuck = await stuck.explain(coordinator)
                    return load
                if time.monotonic() - told_s > _TELL_S:
                    told_s = time.monotonic()
                    _log.info("%d of %d sagas have ended, %d faults", self._ended, args.sagas + args.sessions, injected)
                await asyncio.sleep(_LOOK_S)
        finally:
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)

    async def _look(self, coordinator: Coordinator) -> dict[str, int]:
        load = await coordinator.overview()
        self._known = sum(load.statuses.values())
        ended = sum(load.statuses.get(status, 0) for status in t.SAGA_FINAL)
        if ended != self._ended:
            self._ended, self._ended_at_s = ended, time.monotonic()
        return {"queued": load.queued, "timed": load.timed}

    async def _submit_all(self, coordinator: Coordinator) -> None:
        numbers = iter(range(self._args.sagas))

        async def one_after_another() -> None:
            for number in numbers:
                while self._submitted - self._ended >= self._args.backlog:  # noqa: ASYNC110 - another process ends them
                    await asyncio.sleep(_LOOK_S)
                self._submitted += 1
                await self._submit(coordinator, number)

        await asyncio.gather(*(one_after_another() for _ in range(_SUBMIT_AT_ONCE)))

    async def _submit(self, coordinator: Coordinator, number: int) -> None:
        """Submit until it is acknowledged: each submission with the same id and plan is the same saga."""
        saga_id, plan = plans.saga_id(self._args.seed, number), plans.plan(self._args.seed, number)
        while True:
            try:
                await coordinator.submit(plan, saga_id=saga_id, detach=True)
                return
            except StoreUnavailable:
                raise
            except SagaError as error:
                if error.code != "store-refused":
                    raise
                self._again += 1
                await asyncio.sleep(_LOOK_S)

    # --- the verdict -----------------------------------------------------------------------------------------------

    async def _check(self, server: StoreServer, begun_ms: int, stops: list[Window]) -> verdict.Found:
        args = self._args
        ended_ms = _clock_ms(server)
        folder = str(self._folder)
        work = [
            verdict.Share(server.url, folder, share, args.seed, begun_ms, ended_ms, [], [], [], stops)
            for share in _SHARES
        ]
        for number in range(args.sagas):
            work[world.share_of(plans.saga_id(args.seed, number))].numbers.append(number)
        for number in range(args.sessions):
            work[world.share_of(agent.session_id(args.seed, number))].sessions.append(number)
        for saga_id in self._ticks:
            work[world.share_of(saga_id)].ticks.append(saga_id)
        held_s = sum(window.until_s - window.from_s for window in stops)
        found = verdict.Found(Counter({"ticks": len(self._ticks), "seconds under a stop": round(held_s)}), {})
        loop = asyncio.get_running_loop()
        with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=self._context) as pool:
            for each in asyncio.as_completed([loop.run_in_executor(pool, verdict.check, share) for share in work]):
                figures, breaches = await each
                found.figures.update(figures)
                found.breaches.update(breaches)
        return found

    def _report(
        self,
        injector: Injector,
        server: StoreServer,
        disk: Disk,
        found: verdict.Found,
        outside: dict[str, Any],
        driven_s: float,
        took_s: float,
    ) -> dict[str, Any]:
        args, figures = self._args, dict(found.figures)
        ends = {status: figures.pop(status) for status in sorted(figures) if status.isupper()}
        return {
            "seed": args.seed,
            "sagas": args.sagas,
            "sessions": args.sessions,
            "workers": args.workers,
            "lease_s": args.lease,
            "server": server.version,
            "disk": "tmpfs" if disk.mounted else "limit",
            "ends": ends,
            "figures": {
                **figures,
                "late requests turned away": outside["turned_away"],
                "leases lost": worker.log_lines(self._folder, "lease lost"),
                "submissions refused and repeated": self._again,
            },
            "faults": {
                **{fault: injector.counts[fault] for fault in sorted(injector.counts)},
                "connections cut": sum(line.made for line in injector.lines),
                "connections refused": sum(line.refused for line in injector.lines),
                "store started": server.starts,
                "processes started": sum(child.starts for child in injector.children()),
                "of these by a wrong clock": self._clocks,
                "agents that killed their process": len(list(self._folder.glob(f"agents/*-{agent.DIED}-*"))),
            },
            "seconds": {"driven": round(driven_s, 1), "with the verdict": round(took_s, 1)},
            "stuck": self._stuck,
            "wrong": injector.wrong + [agent.DIVERGED] * worker.log_lines(self._folder, agent.DIVERGED),
            "breaches": dict(sorted(found.breaches.items())),
        }


def serve_world(folder: Path, path: Path, sabotage: str | None) -> None:
    """The process of the external system."""
    die_with_parent()
    with suppress(KeyboardInterrupt):
        asyncio.run(world.serve(folder, path, sabotage))


def _clock_ms(server: StoreServer) -> int:
    with server.client() as client:
        seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def show(report: dict[str, Any]) -> None:
    """Print the figures, then the violations."""
    for name in ("ends", "figures", "faults", "seconds"):
        print(f"{name}:")
        for what, count in report[name].items():
            print(f"  {what:36}{count:>12}")
    for line in report["stuck"]:
        print(f"stuck: {line}")
    for sentence in report["wrong"]:
        print(f"failure: {sentence}")
    for saga_id, sentences in list(report["breaches"].items())[:_SHOWN]:
        for sentence in sentences:
            print(f"{saga_id}: {sentence}")
    count = len(report["breaches"])
    wrong = len(report["wrong"])
    of = f"{report['sagas']} sagas and {report['sessions']} sessions"
    print(f"server: {report['server']}")
    print(f"seed {report['seed']}: {count} of {of} violate a law, {wrong} process failures")


if __name__ == "__main__":
    main()
