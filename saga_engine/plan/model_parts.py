"""The parts that calls of a plan share: the values of its fields, how a call is retried, and how it is undone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator, Field

from saga_engine.plan import limits
from saga_engine.plan.problems import Path
from saga_engine.plan.step_bodies import Model, Seconds, Values, listed
from saga_engine.plan.tool_spec import RetryPolicy

NumberId = Annotated[int, Field(ge=0, lt=2**63)]
WordId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
#: The id of a step.
StepId = NumberId | WordId
ToolName = Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS)]
WaitSeconds = Annotated[float, Field(ge=0, le=limits.MAX_SECONDS, allow_inf_nan=False)]


class Retry(Model, frozen=True):
    """How often and how fast a call is retried. Omitted fields are the tool's own."""

    max_attempts: Annotated[int, Field(ge=1, le=limits.MAX_ATTEMPTS)] | None = Field(
        None, description="The maximum number of attempts, including the first."
    )
    base_s: WaitSeconds | None = Field(
        None, description="The wait in seconds after the first attempt; it doubles each time."
    )
    max_s: WaitSeconds | None = Field(None, description="The longest wait in seconds.")
    jitter: bool | None = Field(None, description="Whether each wait is shortened at random, by at most half.")

    def policy(self, default: RetryPolicy) -> RetryPolicy:
        """The policy to use: ``default``, with this plan's values in place of its own."""
        return RetryPolicy(
            max_attempts=default.max_attempts if self.max_attempts is None else self.max_attempts,
            base_s=default.base_s if self.base_s is None else self.base_s,
            max_s=default.max_s if self.max_s is None else self.max_s,
            jitter=default.jitter if self.jitter is None else self.jitter,
        )


class UndoCall(Model, frozen=True):
    """One call of an undo."""

    tool: ToolName = Field(description="The name of the tool that undoes the step.")
    params: Values = Field(
        default_factory=dict,
        description=(
            "The params of the undo. They may bind the outputs of this step and of earlier steps. Default: none; for "
            "the undo that the tool registers, as its registration fills them."
        ),
    )
    each: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS + 200)] | None = Field(
        None,
        description=(
            "A list, such as '$output.step_1.items' or '$before.items': the tool is called once for each item, which "
            "'$item' and '$index' bind in the params."
        ),
    )
    retry: Retry | None = Field(None, description="How often and how fast the undo is retried.")
    timeout_s: Seconds | None = Field(None, description="The longest time for one attempt, in seconds.")


_Then = Annotated[tuple[UndoCall, ...], Field(max_length=limits.MAX_UNDO_CALLS), BeforeValidator(listed)]


class UndoCalls(UndoCall):
    """An undo: a call, and those that follow it."""

    then: _Then | None = Field(
        None, description="Calls that follow it, in order. Each is made once the last has happened."
    )

    def written(self, path: Path) -> Iterator[tuple[Path, UndoCall]]:
        """Every call of the undo at ``path``, in order, with its own path."""
        yield path, self
        for number, call in enumerate(self.then or ()):
            yield (*path, "then", number), call


class Rollback(UndoCalls):
    """The undo of a step: a call, and perhaps others that follow it."""

    when_absent: UndoCalls | None = Field(
        None,
        description=(
            "The undo if the value that the call changed was not there before (the tool has a 'before'). Default: the "
            "tool's 'undo_absent', or else the same undo."
        ),
    )

    def written(self, path: Path) -> Iterator[tuple[Path, UndoCall]]:
        """Every call of the undo, and then those for a value that was not there."""
        yield from super().written(path)
        if self.when_absent is not None:
            yield from self.when_absent.written((*path, "when_absent"))
