"""Collects the problems of a plan, all of them, in order, up to a readable number."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from saga_engine.errors import PlanInvalid, Problem
from saga_engine.plan.limits import MAX_CANDIDATES, MAX_PROBLEMS, MAX_SUGGESTIONS
from saga_engine.plan.values import cut, json_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Every code with which a plan can be refused. ``docs/reference/errors.md`` explains each; a test compares the two.
CODES = frozenset(
    {
        "ask-invalid",
        "binding-filter",
        "binding-input-missing",
        "binding-malformed",
        "binding-needs-default",
        "binding-not-before",
        "binding-path-absent",
        "binding-redacted",
        "before-misplaced",
        "before-missing",
        "binding-type",
        "binding-unknown-step",
        "builtin-invalid",
        "compute-invalid",
        "compute-misplaced",
        "condition-invalid",
        "depends-on-unknown",
        "each-invalid",
        "expect-unread",
        "fallback-invalid",
        "field-invalid",
        "field-missing",
        "field-unknown",
        "finally-invalid",
        "graph-cycle",
        "kind-contradiction",
        "kind-retriable-before-pivot",
        "limit-additions",
        "limit-bindings",
        "limit-depth",
        "limit-nodes",
        "limit-size",
        "limit-steps",
        "limit-tails",
        "more-problems",
        "params-invalid",
        "pivot-not-last",
        "pivot-second",
        "plan-not-json",
        "plan-unreadable",
        "rollback-missing",
        "rollback-needs-output",
        "rollback-on-read",
        "rollback-reads",
        "saga-children",
        "saga-cycle",
        "saga-depth",
        "saga-input",
        "saga-invalid",
        "saga-template",
        "secret-not-allowed",
        "step-duplicate",
        "template-input",
        "template-task-id",
        "tool-not-allowed",
        "tool-unknown",
        "undo-unfillable",
        "wait-invalid",
    }
)

Path = tuple[str | int, ...]


class Problems:
    """The problems found so far. Beyond the limit they are only counted, so that a hostile plan uses no memory."""

    __slots__ = ("_ignored", "_listed", "_suggestions", "count")

    def __init__(self) -> None:
        self._listed: list[Problem] = []
        self._suggestions = 0
        self._ignored = ""
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def full(self) -> bool:
        """Whether further problems are only counted: their messages need not be built."""
        return len(self._listed) >= MAX_PROBLEMS

    def ignore(self, code: str) -> None:
        """Neither list nor count what is added with this code."""
        self._ignored = code

    def add(self, code: str, path: Iterable[str | int], message: str, hint: str = "") -> None:
        """Add one problem; ``path`` holds the keys and indexes from the plan's root."""
        if code == self._ignored:
            return
        self.count += 1
        if not self.full():
            assert code in CODES, code
            self._listed.append(Problem(code, json_path(path), message, hint))

    def relay(self, problem: Problem, above: str) -> None:
        """Add a problem of a plan inside this one, which stands at ``above``."""
        self.count += 1
        if not self.full():
            self._listed.append(Problem(problem.code, above + problem.path[1:], problem.message, problem.hint))

    def skip(self, count: int) -> None:
        """Count problems that are not listed."""
        self.count += count

    def listed(self) -> list[Problem]:
        """The problems, at most ``MAX_PROBLEMS`` of them, and one more with the number of the omitted ones."""
        left_out = self.count - len(self._listed)
        if left_out <= 0:
            return list(self._listed)
        more = Problem(
            "more-problems",
            "$",
            f"{left_out} more problem{'s' if left_out != 1 else ''} not listed",
            "fix these first, then check again",
        )
        return [*self._listed, more]

    def refuse(self) -> NoReturn:
        """Raise ``PlanInvalid`` with the collected problems."""
        raise PlanInvalid(self.listed())

    def did_you_mean(self, name: str, known: Sequence[str]) -> str:
        """``did you mean 'x'?`` for a name similar to a known one, else an empty text."""
        if self.full() or self._suggestions >= MAX_SUGGESTIONS:
            return ""
        self._suggestions += 1
        from difflib import get_close_matches

        # The search is quadratic in the length of the names, hence the limit.
        near = get_close_matches(name[:64], [candidate[:64] for candidate in known[:MAX_CANDIDATES]], n=1)
        return f"did you mean '{near[0]}'?" if near else ""


def known_names(names: Sequence[str], word: str) -> str:
    """A hint that lists the known names, cut to a readable length."""
    if not names:
        return (
            f"there are no {word}"
            if word != "tools"
            else "no tools are given (by --tools, saga.toml or the coordinator)"
        )
    shown = ", ".join(cut(name, 64).strip('"') for name in names[:10])
    return f"known {word}: {shown}" + (f" and {len(names) - 10} more" if len(names) > 10 else "")
