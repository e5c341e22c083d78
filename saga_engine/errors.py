"""Every error of the engine: a stable code, a message, the context it happened in, and a hint.

An error's *verdict* says what its receiver can do about it:

``fix``
    the input is wrong; the same call will fail again until somebody changes it;
``retry``
    nothing is wrong with the input; the same call may succeed later, and nothing was lost;
``resume``
    a saga stands as its journal says; resume it once the cause is mended;
``conflict``
    somebody else holds what was asked for.

Codes are part of the public surface: a test compares them with ``docs/errors.md``.
This module imports nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

Verdict = Literal["fix", "retry", "resume", "conflict"]
#: Of a plan's problems, so many stand in a traceback.
_MAX_SHOWN = 50


class SagaError(Exception):
    """The base of all errors that the engine raises on purpose.

    ``code`` is stable and machine-readable, ``hint`` tells a person what to do next, and ``context``
    holds the values that the message speaks of.
    """

    code: ClassVar[str] = "saga-error"
    verdict: ClassVar[Verdict] = "fix"

    def __init__(self, message: str, *, hint: str | None = None, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context: Mapping[str, Any] = context

    def __reduce__(self) -> tuple[Any, ...]:
        # By its parts, for another process: subclasses are made from other things than their message.
        return (_revived, (type(self), self.args, dict(vars(self))))

    def to_dict(self) -> dict[str, Any]:
        """The error as one JSON object, as ``--json`` prints it."""
        body: dict[str, Any] = {"code": self.code, "message": self.message, "verdict": self.verdict}
        if self.hint:
            body["hint"] = self.hint
        if self.context:
            body["context"] = {key: _printable(value) for key, value in self.context.items()}
        return body

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]" + (f" — {self.hint}" if self.hint else "")


def _revived(kind: type[SagaError], args: tuple[Any, ...], parts: Mapping[str, Any]) -> SagaError:
    error = kind.__new__(kind, *args)
    vars(error).update(parts)
    return error


def _printable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a plan: what (``code``, ``message``), where (JSON path) and what to do."""

    code: str
    path: str
    message: str
    hint: str = ""

    def to_dict(self) -> dict[str, str]:
        """The problem as one JSON object."""
        return {"code": self.code, "path": self.path, "message": self.message, "hint": self.hint}


class PlanInvalid(SagaError):
    """A plan was refused before anything ran; ``problems`` lists everything that is wrong with it."""

    code = "plan-invalid"

    def __init__(self, problems: Sequence[Problem]) -> None:
        count = len(problems)
        first = problems[0]
        super().__init__(
            f"the plan has {count} problem{'s' if count != 1 else ''}; the first: {first.message} at {first.path}",
            hint=first.hint or None,
        )
        self.problems = list(problems)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return super().__str__()
        lines = [f"the plan has {len(self.problems)} problems [{self.code}]"]
        for problem in self.problems[:_MAX_SHOWN]:
            hint = f" — {problem.hint}" if problem.hint else ""
            lines.append(f"  {problem.path}: {problem.message} [{problem.code}]{hint}")
        if len(self.problems) > _MAX_SHOWN:
            lines.append(f"  and {len(self.problems) - _MAX_SHOWN} more: see error.problems")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The error with all its problems."""
        return super().to_dict() | {"problems": [problem.to_dict() for problem in self.problems]}


class StepUnknown(SagaError, KeyError):
    """A saga has no step with this id."""

    code = "step-unknown"


class OutputNotFetched(SagaError, LookupError):
    """Only the cut form of a large output is at hand, and a program must not take that for the value."""

    code = "output-not-fetched"


class BindingUnresolved(SagaError):
    """A binding has no value, or more than one, when the call that needs it is about to be made."""

    code = "binding-unresolved"


class ValueNotJson(SagaError):
    """A value cannot be journalled: it is not finite JSON, or it is larger or deeper than the limits."""

    code = "value-not-json"


class SecretMissing(SagaError):
    """A plan needs ``$secret.NAME`` and the environment has no such variable. The saga is left as it is."""

    code = "secret-missing"
    verdict = "resume"


class ToolMissing(SagaError):
    """A saga needs a tool that is not registered here. The saga is left exactly as it is."""

    code = "tool-missing"
    verdict = "resume"


class ToolInvalid(SagaError):
    """A tool's declaration contradicts itself, or its module cannot be loaded."""

    code = "tool-invalid"


class SagaNotFound(SagaError):
    """No saga has this id in this store."""

    code = "saga-not-found"


class SagaExists(SagaError):
    """This id belongs to a saga with another plan or other input."""

    code = "saga-exists"
    verdict = "conflict"


class SagaOwned(SagaError):
    """Another live process owns the saga."""

    code = "saga-owned"
    verdict = "conflict"


class QueueFull(SagaError):
    """As many sagas as may wait for a worker already do. Nothing was journalled; the same submission may come later."""

    code = "queue-full"
    verdict = "retry"


class LeaseLost(SagaError):
    """This process no longer has the right to write the saga's journal; it stopped before the next effect."""

    code = "lease-lost"
    verdict = "resume"


class JournalConflict(SagaError):
    """The journal does not continue where this process left it: somebody else wrote. Nothing was added."""

    code = "journal-conflict"
    verdict = "resume"


class JournalUnreadable(SagaError):
    """A record cannot be understood by this version of the engine, or the journal contradicts itself."""

    code = "journal-unreadable"


class TraceBroken(SagaError):
    """A trace was changed, cut short, or is none; the context has the ``line`` (from 1) where it breaks."""

    code = "trace-broken"


class DecisionRefused(SagaError):
    """A person's answer does not fit the open question: wrong step, not asked, or not among the legal answers."""

    code = "decision-refused"
    verdict = "conflict"


class CancelRefused(SagaError):
    """The saga has passed its pivot or has ended: it cannot be cancelled any more."""

    code = "cancel-refused"
    verdict = "conflict"


class AmendRefused(SagaError):
    """Steps cannot be added: the saga has ended, is being undone, or there are none."""

    code = "amend-refused"
    verdict = "conflict"


class ForkRefused(SagaError):
    """A saga cannot be forked: it is under way, past its pivot, a session, or another fork has what it did."""

    code = "fork-refused"
    verdict = "conflict"


class StoreUnavailable(SagaError):
    """The store cannot be reached. No effect was started that is not journalled; nothing is lost."""

    code = "store-unavailable"
    verdict = "resume"


class StoreRefused(SagaError):
    """The store answered with an error (out of memory, read only, no permission). Nothing was added."""

    code = "store-refused"
    verdict: ClassVar[Verdict] = "resume"


class StoreTooWeak(StoreRefused):
    """The server promises less durability than the configured level asks for, at the start or since it came back."""

    code = "store-too-weak"
    verdict = "fix"


class EngineUnavailable(SagaError):
    """The Temporal server cannot be reached, or no worker answers for the saga. Nothing is lost; it stands as it is."""

    code = "engine-unavailable"
    verdict = "retry"


class RuntimeUnsupported(SagaError):
    """The runtime of these sagas cannot do this. Nothing was done."""

    code = "runtime-unsupported"


class StoreUrlInvalid(SagaError):
    """The store's URL cannot be understood, or what it needs is not installed."""

    code = "store-url-invalid"


class SettingInvalid(SagaError):
    """A flag, an environment variable or an entry of ``saga.toml`` has no meaning here."""

    code = "setting-invalid"


class Interrupted(SagaError):
    """Waiting for a saga was interrupted. The saga stands as its journal says."""

    code = "interrupted"
    verdict = "resume"


class EventLoopMismatch(SagaError):
    """A coordinator, a session or a handle was used outside the event loop in which it was opened. Nothing was done."""

    code = "event-loop-mismatch"


class PlannerUnavailable(SagaError):
    """No model is set up here: the extra, the model's name or its key is missing, or its settings make no sense."""

    code = "planner-unavailable"


class ModelUnreachable(SagaError):
    """The model gave no answer: refused, overloaded, out of reach, or too slow. Nothing was begun."""

    code = "model-unreachable"
    verdict = "retry"


class PlannerFailed(SagaError):
    """The model was asked as often as its budget allows and gave no valid plan; ``transcript`` has what was said."""

    code = "planner-failed"
    verdict = "retry"


class GoalImpossible(SagaError):
    """The model says that no plan of these tools serves the goal; the message has its reason."""

    code = "goal-impossible"


class AlertUndelivered(SagaError):
    """A hook could not deliver a question to people. It is tried again."""

    code = "alert-undelivered"
    verdict = "retry"


class CallFailed(SagaError):
    """A call of a session was not done; the agent may do something else. ``error_code`` is the tool's word."""

    code = "call-failed"

    @property
    def error_code(self) -> str:
        """The tool's own code."""
        return str(self.context.get("error_code", ""))


class CallBlocked(CallFailed):
    """The policy, or the person whom it asked, refused a call of a session. Nothing was called."""

    code = "call-blocked"


class NeedsPerson(SagaError):
    """A session cannot go on before a person has answered; then the agent runs again with the same id."""

    code = "needs-person"
    verdict = "resume"


class SessionDiverged(SagaError):
    """An agent that runs again does otherwise than what its session has recorded."""

    code = "session-diverged"
    verdict = "conflict"


class SessionEnded(SagaError):
    """The session is over, or was never begun: no more calls can be made in it."""

    code = "session-ended"
    verdict = "conflict"


class ToolError(Exception):
    """Raised by a tool to say: *it was not done*.

    ``retryable`` tells whether the same call may succeed later; left out, a call is not tried again and an undo is.
    ``suggestion`` tells the model or the person what to do instead; ``retry_after_s`` is the least wait in seconds
    before the next attempt.
    ``definite=False``: the word is about this attempt alone. An earlier attempt under the same key that is in doubt
    stays in doubt: a 401 or a refused connection tells nothing about the request before it.
    """

    def __init__(
        self,
        message: str,
        *,
        error_code: str = "tool_error",
        retryable: bool | None = None,
        suggestion: str | None = None,
        retry_after_s: float | None = None,
        definite: bool = True,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = error_code
        self.retryable = retryable
        self.suggestion = suggestion
        self.retry_after_s = retry_after_s
        self.definite = definite


class OutcomeUnknown(Exception):
    """Raised by a tool to say: *nobody can tell whether it was done*.

    Time-outs and lost connections say so by themselves; this is for what only the tool can see, such as an answer that
    makes no sense. The engine then settles the doubt: by probe, by key, or by asking a person.
    """

    def __init__(self, message: str, *, error_code: str = "outcome_unknown", suggestion: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = error_code
        self.suggestion = suggestion
