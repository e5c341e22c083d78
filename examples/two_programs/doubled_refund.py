"""The doubled refund: ``python doubled_refund.py FRAMEWORK [--engine]``.

An agent refunds an order. The payment happens, and the process is killed before the answer is anywhere. The job is
delivered again, as every queue does. The payment service honours an idempotency key, if it gets one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from frameworks import in_session, plain

from saga_engine import Coordinator, tool

TURNS = [[("refund", {"order": "A-17", "cents": 4200})]]
FOLDER = Path(os.environ.get("DESK", ""))


def pay_back(order: str, cents: int, key: str) -> dict[str, str]:
    """The payment service: it pays once for each key."""
    payments = FOLDER / "payments"
    known = payments.read_text().splitlines() if payments.exists() else []
    if key and any(line.endswith(f" {key}") for line in known):
        return {"refund": order}
    payments.write_text("\n".join([*known, f"{order} {cents} {key or len(known)}"]) + "\n")
    if not (FOLDER / "died").exists():
        (FOLDER / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)  # paid, and nobody knows
    return {"refund": order}


def refund(order: str, cents: int) -> dict[str, str]:
    """Refund an order."""
    return pay_back(order, cents, key="")


@tool(name="take_back")
def take_back(refund: str) -> None:
    """Have a refund taken back."""


@tool(name="refund", undo=take_back)
def refund_once(order: str, cents: int, idempotency_key: str) -> dict[str, str]:
    """Refund an order."""
    return pay_back(order, cents, key=idempotency_key)


async def job(framework: str, *, engine: bool) -> None:
    """The job, as the queue delivers it."""
    if not engine:
        await plain(framework, TURNS, [refund])
        return
    store = f"embedded://{FOLDER / 'store'}"
    opening = Coordinator.open(store, [refund_once], lease_s=1, settings=None)
    async with opening as coordinator, coordinator.session("refund-A-17") as session:  # the id of the job
        await in_session(framework, session, TURNS)


def main(framework: str, *rest: str) -> None:
    if FOLDER.name:
        asyncio.run(job(framework, engine="--engine" in rest))
        return
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):  # the queue delivers the job again, because its worker died
            subprocess.run(
                [sys.executable, __file__, framework, *rest], env={**os.environ, "DESK": folder}, check=False
            )
        paid = (Path(folder) / "payments").read_text().splitlines()
    print(f"{framework}{' with the engine' if rest else ''}: A-17 was refunded {len(paid)} time{'s' * (len(paid) > 1)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
