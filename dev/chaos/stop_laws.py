"""The laws of the operator's stops: no forward call starts while one holds it, and undos go on.

The external system notes when each request was sent, by the monotonic clock of the machine. A request that a stop
covers has an order in the journal that is not later than the stop: its process may have been suspended in between.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dev.chaos.stops import Window
from dev.chaos.told import Told

#: A step, an attempt, and the epoch of the owner; 0 for the first owner.
_Call = tuple[str, int, int]


class Request(NamedTuple):
    """A request that the external system received; ``sent_s`` is when its sender sent it."""

    saga_id: str
    step_id: str
    direction: str
    attempt: int
    epoch: int
    tool: str
    sent_s: float


def requests_path(folder: Path, share: int) -> Path:
    """The log of a share."""
    return folder / f"requests-{share:02d}.jsonl"


def read_requests(path: Path) -> dict[str, list[Request]]:
    """All requests by saga, in the order in which they arrived."""
    found: dict[str, list[Request]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        request = Request(*json.loads(line))
        found.setdefault(request.saga_id, []).append(request)
    return found


def breaches(windows: Sequence[Window], requests: Sequence[Request], told: Told) -> Iterator[str]:
    """Every law of stops that a saga breaks, as sentences."""
    orders = _orders(told)
    epochs = {record["epoch"] for record in told.history if record["k"] == "SagaResumed"}
    for window, request in _during(windows, requests, "forward"):
        latest_ms = window.from_ms + round((request.sent_s - window.from_s) * 1000)
        call = (request.step_id, request.attempt, request.epoch if request.epoch in epochs else 0)
        order_ms = max((at for at in orders.get(call, ()) if at <= latest_ms), default=None)
        if order_ms is None or order_ms > window.from_ms:
            yield (
                f"step {request.step_id} called {request.tool} (attempt {request.attempt}), which was stopped: "
                f"{window.scope} from {window.from_ms}, sent at {latest_ms}, ordered at {order_ms}"
            )
    yield from _held_undos(told)


def _held_undos(told: Told) -> Iterator[str]:
    """An undo waits for a resource of its plan, and for nothing else."""
    plan = told.history[0].get("plan") or {}
    alone = not any("resource" in step for step in plan.get("steps", ()))
    for record in told.history:
        if record.get("direction") != "compensate":
            continue
        if record["k"] == "StepQueued" and alone:
            yield f"the undo of step {record['step']} waited, and it needs no resource"
        if (record.get("error") or {}).get("error_code") == "stopped":
            yield f"the undo of step {record['step']} was held by a stop"


def figures(windows: Sequence[Window], requests: Sequence[Request]) -> Counter[str]:
    """How many requests were sent although a stop covered their tool, and how many of them were undos."""
    return Counter(
        {
            "sent under a stop": sum(1 for _ in _during(windows, requests, "forward")),
            "undone under a stop": sum(1 for _ in _during(windows, requests, "compensate")),
        }
    )


def _during(windows: Sequence[Window], requests: Sequence[Request], way: str) -> Iterator[tuple[Window, Request]]:
    for window in windows:
        for request in requests:
            held = window.covers(request.saga_id, request.tool) and window.from_s <= request.sent_s <= window.until_s
            if held and request.direction == way:
                yield window, request


def _orders(told: Told) -> Mapping[_Call, Sequence[int]]:
    """When each forward call was ordered: by its intent, or, after it had waited, by the record that it begins."""
    found: dict[_Call, list[int]] = {}
    attempts: dict[str, int] = {}
    epoch = 0
    for record in told.history:
        step: Any = str(record.get("step", ""))
        if record["k"] == "SagaResumed":
            epoch = record["epoch"]
        elif record.get("direction", "forward") != "forward":
            continue
        elif record["k"] == "StepIntended":
            attempts[step] = record.get("attempt", 1)
            found.setdefault((step, attempts[step], epoch), []).append(record["at"])
        elif record["k"] == "StepBegun":
            found.setdefault((step, attempts[step], epoch), []).append(record["at"])
    return found
