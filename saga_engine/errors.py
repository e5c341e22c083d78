"""Every error of the engine: a stable code, a message, the context it happened in, and a hint.

An error's *verdict* says what its receiver can do about it:

- ``fix``: the input is wrong; the same call will fail again until somebody changes it;
- ``retry``: nothing is wrong with the input; the same call may succeed later, and nothing was lost;
- ``resume``: a saga stands as its journal says; resume it once the cause is mended;
- ``conflict``: somebody else holds what was asked for.

Codes are part of the public surface; ``docs/reference/errors.md`` has them all. This imports nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

ErrorVerdict = Literal["fix", "retry", "resume", "conflict"]
#: A traceback shows at most so many problems of a plan.
_MAX_SHOWN = 50


class SagaError(Exception):
    """The base of all errors that the engine raises on purpose.

    ``code`` is stable and machine-readable, ``hint`` states what to do next, and ``context`` holds the values that the
    message mentions.
    """

    code: ClassVar[str] = "saga-error"
    verdict: ClassVar[ErrorVerdict] = "fix"

    def __init__(self, message: str, *, hint: str | None = None, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context: Mapping[str, Any] = context

    def __reduce__(self) -> tuple[Any, ...]:
        # By its parts, for another process: subclasses are not constructed from their message.
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
    """One problem of a plan: what (``code``, ``message``), where (JSON path) and what to do."""

    code: str
    path: str
    message: str
    hint: str = ""

    def to_dict(self) -> dict[str, str]:
        """The problem as one JSON object."""
        return {"code": self.code, "path": self.path, "message": self.message, "hint": self.hint}


class PlanInvalid(SagaError):
    """The engine refused a plan before anything ran; ``problems`` lists all its problems."""

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
    """Only the cut form of a large output is available, and a program must not use that as the value."""

    code = "output-not-fetched"


class EventRefused(SagaError):
    """An event was not accepted: its name, key, id or payload is none, does not fit, or its channel is full."""

    code = "event-refused"


class BindingUnresolved(SagaError):
    """A binding has no value, or more than one, when the call that needs it is about to be made."""

    code = "binding-unresolved"


class ValueNotJson(SagaError):
    """A value cannot be journalled: it is not finite JSON, or it is larger or deeper than the limits."""

    code = "value-not-json"


class SecretMissing(SagaError):
    """A plan needs ``$secret.NAME`` and the environment has no such variable. The saga stays as it is."""

    code = "secret-missing"
    verdict = "resume"


class ToolMissing(SagaError):
    """A saga needs a tool that is not registered here. The saga stays exactly as it is."""

    code = "tool-missing"
    verdict = "resume"


class ExtensionMissing(ToolMissing):
    """A saga has a step of a package that is not installed here. The saga stays exactly as it is."""

    code = "extension-missing"


class ToolInvalid(SagaError):
    """A tool's declaration contradicts itself, or its module cannot be loaded."""

    code = "tool-invalid"


class SagaNotFound(SagaError):
    """No saga has this id in this store."""

    code = "saga-not-found"


class TemplateNotFound(SagaError):
    """The store has no template of this name and version."""

    code = "template-not-found"


class ScheduleNotFound(SagaError):
    """The store has no schedule of this name."""

    code = "schedule-not-found"


class SagaExists(SagaError):
    """This id belongs to a saga with another plan or other input."""

    code = "saga-exists"
    verdict = "conflict"


class LeaseHeld(SagaError):
    """Another live process owns the saga."""

    code = "lease-held"
    verdict = "conflict"


class QueueFull(SagaError):
    """The maximum number of sagas waits for a worker. Nothing was journalled; submit again later."""

    code = "queue-full"
    verdict = "retry"


class LeaseLost(SagaError):
    """This process no longer has the right to write the saga's journal; it stopped before the next effect."""

    code = "lease-lost"
    verdict = "resume"


class JournalConflict(SagaError):
    """The journal does not continue where this process left it: another process wrote. Nothing was added."""

    code = "journal-conflict"
    verdict = "resume"


class JournalUnreadable(SagaError):
    """A record cannot be understood by this version of the engine, or the journal contradicts itself."""

    code = "journal-unreadable"


class KeyMissing(JournalUnreadable):
    """Payloads are sealed with a key that this process does not have. The saga stays exactly as it is."""

    code = "key-missing"
    verdict: ClassVar[ErrorVerdict] = "resume"


class KeyRefused(JournalUnreadable):
    """A key is not the one that its name stands for, or was retired: somebody put back an old or a foreign one."""

    code = "key-refused"


class SealBroken(JournalUnreadable):
    """A sealed payload is not what was written at its place: it was changed, moved, or put there by another program."""

    code = "seal-broken"


class SagaErased(JournalUnreadable):
    """The key of this saga was destroyed: its payloads are gone. The context has ``by``, ``why`` and ``at_ms``."""

    code = "saga-erased"


class EraseRefused(SagaError):
    """A saga cannot be erased: it has not ended, or its payloads were never sealed."""

    code = "erase-refused"
    verdict = "conflict"


class TraceBroken(SagaError):
    """The file was changed, truncated, or is no trace; the context has the ``line`` (from 1) where it breaks."""

    code = "trace-broken"


class DecisionRefused(SagaError):
    """An operator's answer does not fit the open question: wrong step, no question, or not among the legal answers."""

    code = "decision-refused"
    verdict = "conflict"


class CancelRefused(SagaError):
    """The saga has passed its pivot or has ended: it cannot be cancelled any more."""

    code = "cancel-refused"
    verdict = "conflict"


class FilesExist(SagaError):
    """A command would write files of which some exist: it changes none."""

    code = "files-exist"
    verdict = "conflict"


class ResumeRefused(SagaError):
    """The saga has ended, or waits for an operator: of a batch it is left out."""

    code = "resume-refused"
    verdict = "conflict"


class AmendRefused(SagaError):
    """Steps cannot be added: the saga has ended, is being undone, or the list is empty."""

    code = "amend-refused"
    verdict = "conflict"


class ForkRefused(SagaError):
    """A saga cannot be forked: it is running, past its pivot, or its effects have changed or are another fork's."""

    code = "fork-refused"
    verdict = "conflict"


class UndoRefused(SagaError):
    """A saga cannot be undone: it has not completed, nothing of it stands, or steps without an undo would remain."""

    code = "undo-refused"
    verdict = "conflict"


class StoreUnavailable(SagaError):
    """The store cannot be reached. No effect was started that is not journalled; nothing is lost."""

    code = "store-unavailable"
    verdict: ClassVar[ErrorVerdict] = "resume"


class StopIncomplete(StoreUnavailable):
    """A stop was set or lifted, and primaries of a cluster that are away did not get that: ``context["partitions"]``.

    A process learns of the change from the others, unless it writes to these partitions alone. Repeat the call.
    """

    code = "stop-incomplete"
    verdict = "retry"


class StoreRefused(SagaError):
    """The store answered with an error (out of memory, read only, no permission). Nothing was added."""

    code = "store-refused"
    verdict: ClassVar[ErrorVerdict] = "resume"


class DurabilityInsufficient(StoreRefused):
    """The server provides less durability than configured, at start or since it came back."""

    code = "durability-insufficient"
    verdict = "fix"


class RuntimeUnavailable(SagaError):
    """The Temporal server cannot be reached, or no worker answers for the saga. Nothing is lost."""

    code = "runtime-unavailable"
    verdict = "retry"


class RuntimeUnsupported(SagaError):
    """The runtime of these sagas does not support this. Nothing was done."""

    code = "runtime-unsupported"


class StoreUrlInvalid(SagaError):
    """The store's URL is malformed, or the extra that it needs is not installed."""

    code = "store-url-invalid"


class SettingInvalid(SagaError):
    """A flag, an environment variable or an entry of ``saga.toml`` is invalid here."""

    code = "setting-invalid"


class Interrupted(SagaError):
    """Waiting for a saga was interrupted. The saga is in the state that its journal describes."""

    code = "interrupted"
    verdict = "resume"


class EventLoopMismatch(SagaError):
    """A coordinator, a session or a handle was used outside the event loop in which it was opened. Nothing was done."""

    code = "event-loop-mismatch"


class PlannerUnavailable(SagaError):
    """No model is configured here: the extra, the model's name or its key is missing, or its settings are invalid."""

    code = "planner-unavailable"


class ModelUnreachable(SagaError):
    """The model did not answer: refused, overloaded, unreachable, or too slow. Nothing was started."""

    code = "model-unreachable"
    verdict = "retry"


class PlannerFailed(SagaError):
    """The model used its budget and gave no valid plan; ``transcript`` has its answers."""

    code = "planner-failed"
    verdict = "retry"


class PlannerAsks(SagaError):
    """The model asks the user before it plans: ``questions`` has a ``name``, a ``question`` and maybe ``options`` each.

    Ask again with the answers, by name. Nothing was started.
    """

    code = "planner-asks"

    @property
    def questions(self) -> list[dict[str, Any]]:
        """The questions, in the model's order."""
        found: list[dict[str, Any]] = self.context.get("questions", [])
        return found


class PlannerNeeds(SagaError):
    """The goal needs parts of the plan format that the model may not use here: ``needs`` names them."""

    code = "planner-needs"

    @property
    def needs(self) -> list[str]:
        """The names of the parts, and ``reads`` for lookups while the model plans."""
        return list(self.context.get("needs", ()))


class GoalImpossible(SagaError):
    """The model says that no plan of these tools serves the goal; the message has its reason."""

    code = "goal-impossible"


class AlertUndelivered(SagaError):
    """A hook could not deliver a question. The engine repeats the delivery."""

    code = "alert-undelivered"
    verdict = "retry"


class CallFailed(SagaError):
    """A call of a session was not done; the agent may do something else. ``error_code`` comes from the tool."""

    code = "call-failed"

    @property
    def error_code(self) -> str:
        """The tool's own code."""
        return str(self.context.get("error_code", ""))


class CallInvalid(CallFailed):
    """A call of a session cannot be made as the agent wrote it: ``problems`` lists why. Nothing was recorded or called.

    A tool that is not there, params that do not fit it, or that are no JSON object: a model can mend that.
    """

    code = "call-invalid"

    problems: Sequence[Problem] = ()

    @classmethod
    def of(cls, tool: str, problems: Sequence[Problem], hint: str = "") -> CallInvalid:
        """The error of a call of ``tool``."""
        said = "; ".join(f"{each.path}: {each.message}" for each in problems[:_MAX_SHOWN])
        more = f" and {len(problems) - _MAX_SHOWN} more" if len(problems) > _MAX_SHOWN else ""
        first = problems[0]
        made = cls(f"{tool}: {said}{more}", hint=hint or first.hint or None, error_code=first.code, tool=tool)
        made.problems = list(problems)
        return made

    def to_dict(self) -> dict[str, Any]:
        """The error with all its problems."""
        return super().to_dict() | {"problems": [problem.to_dict() for problem in self.problems]}


class CallBlocked(CallFailed):
    """The policy, or the operator whom it asked, refused a call of a session. Nothing was called."""

    code = "call-blocked"


class NeedsPerson(SagaError):
    """A session cannot continue before an operator has answered; then the agent runs again with the same id."""

    code = "needs-person"
    verdict = "resume"


class SessionDiverged(SagaError):
    """An agent that runs again makes other calls than its session has recorded."""

    code = "session-diverged"
    verdict = "conflict"


class SessionEnded(SagaError):
    """The session is over, or was never opened: no more calls can be made in it."""

    code = "session-ended"
    verdict = "conflict"


class RequestInvalid(SagaError):
    """A request to the server has a wrong path, method, header, size or field; ``where`` in its context says which."""

    code = "request-invalid"


class KeyReused(SagaError):
    """An idempotency key stands for another request of the same caller. Nothing was done."""

    code = "key-reused"
    verdict = "conflict"


class Unauthenticated(SagaError):
    """A request to the server has no token, or one that is unknown, expired or revoked."""

    code = "unauthenticated"


class IssuerUnavailable(SagaError):
    """The server cannot verify a token now, because the OpenID Connect issuer does not give its keys."""

    code = "issuer-unavailable"
    verdict = "retry"


class Forbidden(SagaError):
    """The token does not have the scope, or the request comes from a page or a host that the server does not serve."""

    code = "forbidden"


class QuotaExceeded(SagaError):
    """A token or a tenant has reached a limit of the server. Nothing was done."""

    code = "quota-exceeded"
    verdict = "retry"


class SignatureInvalid(SagaError):
    """An event or a callback has no valid signature, is too old, or comes for a wait that is over."""

    code = "signature-invalid"


class TokenNotFound(SagaError):
    """The store has no token with this id."""

    code = "token-not-found"


class JobNotFound(SagaError):
    """The server has no job with this id."""

    code = "job-not-found"


class ToolError(Exception):
    """Raised by a tool to report: *it was not done*.

    ``retryable`` states whether the same call may succeed later; if omitted, a call is not retried and an undo is.
    ``suggestion`` tells the model or the operator what to do instead; ``retry_after_s`` is the minimum wait in seconds
    before the next attempt. ``definite=False``: the statement covers this attempt alone. An earlier attempt under the
    same key that is in doubt stays in doubt: a 401 or a refused connection says nothing about the request before it.
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
    """Raised by a tool to report: *it is unknown whether it was done*.

    Time-outs and lost connections are recognized without it; this is for what only the tool can see, such as a
    malformed response. The engine then settles the doubt: by probe, by key, or by asking an operator.
    """

    def __init__(self, message: str, *, error_code: str = "outcome_unknown", suggestion: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.error_code = error_code
        self.suggestion = suggestion
