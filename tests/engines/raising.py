"""A remote side that keeps keys, and tools of it that raise what says nothing about the call."""

from __future__ import annotations

from typing import Any, Final

from saga_engine import RetryPolicy, ToolError, tool

FAST: Final = RetryPolicy(max_attempts=4, base_s=0.001, max_s=0.002)
#: Temporal's test server loses the turn of a workflow that cancels a timer in the moment in which it fires.
UNHURRIED: Final = RetryPolicy(max_attempts=4, base_s=0.5, max_s=1.0)
#: When it raises: before the effect, each time; after it, each time; after it, once.
WHEN: Final = ("before", "after", "once")


class SdkError(Exception):
    """An SDK's own name for whatever went wrong."""


def wrapped() -> None:
    try:
        raise KeyError("order")
    except KeyError as error:
        raise SdkError("it did not work") from error


def handled() -> None:
    try:
        raise SdkError("it did not work")
    except SdkError:
        raise ValueError("refused") from None


def plain(kind: type[Exception], message: str) -> Any:
    def raises() -> None:
        raise kind(message)

    return raises


#: Exceptions that are no statement of a tool, by name.
FOREIGN: Final[dict[str, Any]] = {
    "RuntimeError": plain(RuntimeError, "upstream error"),
    "ValueError": plain(ValueError, "full"),
    "an SDK's": plain(SdkError, "it did not work"),
    "from another": wrapped,
    "while another is handled": handled,
    "a KeyError": lambda: {}["order_id"],
    "a group": lambda: (_ for _ in ()).throw(ExceptionGroup("tasks", [SdkError("one"), ValueError("two")])),
}


class Remote:
    """What stands, by the key of the call that made it; each key counts once."""

    def __init__(self, when: str, error: str, settles: str, retry: RetryPolicy = FAST) -> None:
        self._retry = retry
        self.standing: dict[str, str] = {}
        self.seen: dict[str, str] = {}
        self.raised = 0
        self._when = when
        self._error = FOREIGN[error]
        self._settles = settles

    def _book(self, what: str, key: str) -> dict[str, str]:
        fails = what == "hotel" and (self._when != "once" or not self.raised)
        if fails and self._when == "before":
            self.raised += 1
            self._error()
        if key not in self.seen:
            self.seen[key] = self.standing[key] = what
        if fails:
            self.raised += 1
            self._error()
        return {"ref": key}

    def tools(self) -> list[Any]:
        """``book``, whose doubts are settled by its key alone, by an undo that names the key as well, or by a probe."""

        @tool(effect="read")
        async def find(idempotency_key: str) -> dict[str, str] | None:
            return {"ref": idempotency_key} if idempotency_key in self.standing else None

        @tool(
            undo="cancel",
            undo_params={"ref": "$key"} if self._settles == "undo" else None,
            probe=find if self._settles == "probe" else None,
            retry=self._retry,
        )
        async def book(what: str, idempotency_key: str) -> dict[str, str]:
            return self._book(what, idempotency_key)

        @tool(tolerates_absence=True, retry=FAST)
        async def cancel(ref: str) -> dict[str, bool]:
            return {"gone": self.standing.pop(ref, None) is not None}

        @tool(undo="cancel", undo_params={"ref": "$key"})
        async def fail() -> None:
            raise ToolError("no", error_code="no", retryable=False)

        return [book, cancel, find, fail]

    def lies(self, status: str, report: dict[str, Any], wanted: int) -> list[str]:
        """What a saga's end claims that is not so."""
        standing = len(self.standing)
        if status == "COMPLETED":
            return [] if standing == wanted else [f"completed, and {standing} of {wanted} stand"]
        return ["clean, and something stands"] if report["clean"] and standing else []
