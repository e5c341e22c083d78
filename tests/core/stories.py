"""Sagas that are told the same way each time: for golden traces, and for what is done to traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saga_engine.core.effects import Ask, Blocked, ErrorInfo, NotDone, Unknown
from saga_engine.plan.tool_spec import RetryPolicy, ToolSpec
from tests.core.recording import Recording

BUSY = NotDone(ErrorInfo("busy", "later", retryable=True), retryable=True)
NO = NotDone(ErrorInfo("full", "no rooms", "try another day"), retryable=False, definite=True)
LOST = Unknown(ErrorInfo("timeout", "no answer"))
SPECS = [
    ToolSpec("find", effect="read", digest="d-find"),
    ToolSpec("book", undo="unbook", keyed=True, digest="d-book", retry=RetryPolicy(3, jitter=False)),
    ToolSpec("pay", undo="refund", probe="paid", digest="d-pay"),
    ToolSpec("unbook", keyed=True, tolerates_absence=True, digest="d-unbook"),
    ToolSpec("refund", keyed=True, tolerates_absence=True, digest="d-refund"),
    ToolSpec("paid", effect="read", digest="d-paid"),
]


def plan(**fields: Any) -> dict[str, Any]:
    """Find, book what was found, pay for it with a secret."""
    ref = {"ref": "$key"}
    return {
        "task_id": "trip",
        "goal": "A room for Zoë ☃",
        "input": {"guest": "Zoë", "card": "4111-1111"},
        "steps": [
            {"step_id": "find", "name": "find a room", "tool": "find", "params": {"city": "Łódź"}},
            {
                "step_id": "book",
                "tool": "book",
                "params": {"room": "$output.step_find.ref", "guest": "$input.guest"},
                "rollback": {"tool": "unbook", "params": ref},
            },
            {
                "step_id": "pay",
                "tool": "pay",
                "params": {"card": "$input.card", "token": "$secret.TOKEN", "for": "room {$output.step_book.ref}"},
                "rollback": {"tool": "refund", "params": ref},
            },
        ],
        **fields,
    }


def completed() -> Recording:
    """All goes well, at the second try of one."""
    return Recording(plan(), SPECS, {("book", "forward"): [BUSY]}).run()


def undone() -> Recording:
    """The last step fails for good; an undo is lost in a crash, and made again."""
    saga = Recording(plan(), SPECS, {("pay", "forward"): [NO]}).run(3)
    saga.decide()
    return saga.crash().run()


def doubtful() -> Recording:
    """Nobody can tell whether it was paid; the probe cannot, and a person can."""
    probes = [LOST, LOST, LOST]
    saga = Recording(plan(), SPECS, {("pay", "forward"): [LOST], ("pay", "probe"): probes}, alerting=True).run()
    saga.message(kind="resolve", step="pay", decision="happened", output={"ref": "by hand"}, by="ada", note="I looked")
    return saga.run()


def approved() -> Recording:
    """The policy asks first and a person approves; then another refuses, and it is undone."""
    ask = Ask(ErrorInfo("approval_required", "may it?"), "digest-of-the-call", 60.0, "over 100")
    saga = Recording(
        plan(),
        SPECS,
        {("book", "forward"): [ask], ("pay", "forward"): [Blocked(ErrorInfo("policy_denied", "never"), "deny")]},
    ).run()
    saga.message(kind="resolve", step="book", decision="approve", by="ada")
    return saga.run()


def cancelled() -> Recording:
    """Steps are added, one message is refused, the saga is cancelled, and it has not come to its end yet."""
    saga = Recording(plan(), SPECS).run(1)
    saga.message(kind="amend", steps=[{"step_id": "more", "tool": "book", "params": {"room": "7"}}], by="agent")
    saga.message(kind="resolve", step="book", decision="retry", by="eve")
    saga.decide()
    saga.message(kind="cancel", by="ada", note="changed my mind")
    saga.answered()
    saga.decide()
    return saga


STORIES: dict[str, Callable[[], Recording]] = {
    story.__name__: story for story in (completed, undone, doubtful, approved, cancelled)
}
