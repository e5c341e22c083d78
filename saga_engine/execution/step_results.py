"""The steps of a saga's result, typed: for programs, and for editors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, overload

import msgspec

from saga_engine.core.effects import ErrorInfo
from saga_engine.errors import OutputNotFetched, StepUnknown

_MAX_NAMED: Final = 20


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """A step's call in one direction. Times are Unix milliseconds of the store's clock.

    ``params`` are in the form of views: cut, with markers for secrets; None where a binding has no value.
    ``idempotency_key`` is None until the first attempt, and of a tool that gets none.
    ``traceback``: where the tool raised an unforeseen exception.
    """

    step_id: int | str
    name: str
    tool: str
    status: str
    attempts: int
    error: ErrorInfo | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    took_ms: int | None = None
    params: dict[str, Any] | None = None
    idempotency_key: str | None = None
    next_try_ms: int | None = None
    traceback: str | None = None
    #: The output as in the body of the result; ``output`` refuses the cut form.
    shown: Any = None
    cut: bool = False

    @property
    def output(self) -> Any:
        """The output, None if there is none. Raises ``OutputNotFetched`` if only its cut form is available."""
        if self.cut:
            raise OutputNotFetched(
                f"the output of step {self.step_id} was not fetched", hint="use show(..., full=True)"
            )
        return self.shown


class StepResult(CallResult, frozen=True, kw_only=True):
    """A step: its forward call, and its undo as ``compensation``.

    ``model_asked_ms``: when a model that could not be reached is asked again because of this step.
    """

    kind: str
    compensation: CallResult | None = None
    model_asked_ms: int | None = None

    @property
    def succeeded(self) -> bool:
        """Whether its call happened and its effect remains."""
        return self.status == "SUCCEEDED"


class Failure(msgspec.Struct, frozen=True):
    """Why a saga did not simply complete. ``step_id`` is None where that concerns no single step."""

    code: str
    step_id: int | str | None = None
    error_code: str | None = None
    message: str | None = None
    suggestion: str | None = None


class Steps(Sequence[StepResult]):
    """The steps in the order of the plan; ``by_id`` finds one by its id, which may be a number or its text."""

    __slots__ = ("_by_key", "_saga_id", "_steps")

    def __init__(self, saga_id: str, bodies: Sequence[Mapping[str, Any]]) -> None:
        self._saga_id = saga_id
        self._steps = [_step(body) for body in bodies]
        self._by_key = {str(step.step_id): step for step in self._steps}

    @overload
    def __getitem__(self, at: int) -> StepResult: ...

    @overload
    def __getitem__(self, at: slice) -> list[StepResult]: ...

    def __getitem__(self, at: int | slice) -> StepResult | list[StepResult]:
        return self._steps[at]

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[StepResult]:
        return iter(self._steps)

    def __repr__(self) -> str:
        return f"Steps({', '.join(f'{step.step_id}: {step.status}' for step in self._steps[:_MAX_NAMED])})"

    def by_id(self, step_id: int | str) -> StepResult:
        """The step with this id. Raises ``StepUnknown``, which is a ``KeyError``."""
        found = self._by_key.get(str(step_id))
        if found is not None:
            return found
        named = [str(step.step_id) for step in self._steps[:_MAX_NAMED]]
        more = f" and {len(self._steps) - _MAX_NAMED} more" if len(self._steps) > _MAX_NAMED else ""
        raise StepUnknown(
            f"saga {self._saga_id} has no step {step_id!r}",
            hint=f"it has {', '.join(named)}{more}" if named else "it has no steps",
            saga_id=self._saga_id,
            step_id=str(step_id),
        )


def failure_of(body: Mapping[str, Any] | None) -> Failure | None:
    """The ``error`` of a result's body."""
    return None if body is None else msgspec.convert(body, Failure)


def _step(body: Mapping[str, Any]) -> StepResult:
    undo = body["compensation"]
    compensation = None if undo is None else CallResult(**_call(undo))
    asked_ms = body.get("model_asked_ms")
    return StepResult(**_call(body), kind=body["kind"], compensation=compensation, model_asked_ms=asked_ms)


def _call(body: Mapping[str, Any]) -> dict[str, Any]:
    error = body["error"]
    plain = ("step_id", "name", "tool", "status", "attempts", "started_ms", "ended_ms")
    return {
        **{name: body[name] for name in plain},
        **{name: body.get(name) for name in ("took_ms", "params", "idempotency_key", "next_try_ms", "traceback")},
        "error": None if error is None else msgspec.convert(error, ErrorInfo),
        "shown": body["output"],
        "cut": "output_ref" in body,
    }
