"""What a model may answer instead of a plan: a request for hidden tools or for leave, questions, or lookups.

Each such answer costs a request of the budget, and only ``MOST_DETOURS`` of them are followed for one plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import PlannerAsks, PlannerNeeds, Problem
from saga_engine.plan.problems import known_names
from saga_engine.plan.values import cut, json_path, printable
from saga_engine.planner.allowed_tools import Offer
from saga_engine.planner.features import READS, command, others
from saga_engine.planner.repair_loop import Detour
from saga_engine.planner.review import review_plan

if TYPE_CHECKING:
    from saga_engine.plan.model import Plan
    from saga_engine.plan.tool_spec import ToolCatalog
    from saga_engine.planner.plan_reads import PlanReads
    from saga_engine.ports import PlanRequest

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_MAX_QUESTIONS: Final = 10
_QUESTION_CHARS: Final = 500
_MAX_OPTIONS: Final = 20
_OPTION_CHARS: Final = 200
#: The answers that are neither steps nor a refusal, in the order in which they count.
_DETOURS: Final = ("questions", "tools", "reads", "needs")
#: How many tools that read are named as those that could be allowed.
_NAMED_READS: Final = 8


@dataclass(slots=True)
class PlanDialog:
    """One goal's conversation: the offered tools grow with it. ``request`` is the first question."""

    request: PlanRequest
    catalog: ToolCatalog | None
    rules: Mapping[str, Any] = field(default_factory=dict)
    reads: PlanReads | None = None
    offer: Offer = field(init=False)

    def __post_init__(self) -> None:
        self._show(self.request)

    @property
    def facts(self) -> dict[str, Any]:
        """What the result says: how many tools there are, how many the model saw whole, and the lookups."""
        shown = len(self.request.tools)
        made = () if self.reads is None else tuple(self.reads.made)
        return {"tools_shown": shown, "tools_known": shown + len(self.request.hidden), "reads": made}

    def review(self, data: Mapping[str, Any], notes: list[str]) -> tuple[Plan | None, list[Problem]]:
        """The plan in an answer, repaired as far as possible, and its problems."""
        return review_plan(data, self.offer, self.request, notes)

    async def follow(self, data: Mapping[str, Any]) -> Detour | None:
        """What to do about an answer that is no plan; None: it is one, or a refusal that counts."""
        if data.get("steps"):
            return None
        came = next((name for name in _DETOURS if data.get(name)), None)
        if came == "questions":
            return self._asks(data["questions"])
        if came == "tools":
            return self._more_tools(data["tools"])
        if came == "reads":
            return await self._look_up(data["reads"])
        if came == "needs":
            return self._needs(data["needs"])
        if data.get("impossible") and self.request.hidden:
            self._show(replace(self.request, tools=[*self.request.tools, *self.request.hidden], hidden=()))
            return Detour("impossible", self.request)
        return None

    def _show(self, request: PlanRequest) -> None:
        self.request = request
        self.offer = Offer(request.tools, self.catalog, request.secrets, **self.rules)

    # --- hidden tools --------------------------------------------------------------------------------------------

    def _more_tools(self, named: Any) -> Detour:
        wanted = [named] if isinstance(named, str) else named
        if not isinstance(wanted, list) or not all(isinstance(name, str) for name in wanted):
            return _refused("tools", "field-invalid", "$.tools", "'tools' is a list of names", "name hidden tools")
        hidden = {spec.name: spec for spec in self.request.hidden}
        found = [hidden[name] for name in dict.fromkeys(wanted) if name in hidden]
        unknown = [name for name in wanted if name not in hidden and name not in self.offer.offered]
        if not found:
            what = f"there is no tool {cut(unknown[0], 80)}" if unknown else "these tools are shown already"
            hint = known_names(sorted(hidden), "hidden tools") if hidden else "all tools are shown; write the plan"
            return _refused("tools", "tool-unknown", "$.tools", what, hint)
        rest = [spec for spec in self.request.hidden if spec not in found]
        self._show(replace(self.request, tools=[*self.request.tools, *found], hidden=rest))
        return Detour("tools", self.request)

    # --- questions -----------------------------------------------------------------------------------------------

    def _asks(self, asked: Any) -> Detour:
        problems: list[Problem] = []
        questions: list[dict[str, Any]] = []
        listed = asked if isinstance(asked, list) else [asked]
        for number, each in enumerate(listed[:_MAX_QUESTIONS]):
            found = _question(each)
            place = json_path(("questions", number))
            if found is None:
                hint = 'write {"name": "travel_date", "question": "On which day?", "options": ["…", "…"]}'
                problems.append(Problem("field-invalid", place, "a question has a 'name' and a 'question'", hint))
            elif found["name"] in self.request.answers:
                message = f"the question {found['name']} is answered already"
                problems.append(Problem("question-answered", place, message, "its answer stands in 'answers'"))
            else:
                questions.append(found)
        if problems or not questions:
            return Detour("questions", None, problems)
        names = ", ".join(question["name"] for question in questions)
        return Detour(
            "questions",
            error=PlannerAsks(
                f"the model needs {len(questions)} answer{'s' if len(questions) > 1 else ''}: {names}",
                hint="saga plan … --answer NAME=VALUE (in Python: answers={…})",
                questions=questions,
            ),
        )

    # --- leave ---------------------------------------------------------------------------------------------------

    def _needs(self, named: Any) -> Detour:
        """Parts of the format that somebody has to allow first; what is allowed already is no reason to wait."""
        wanted = [named] if isinstance(named, str) else named
        if not isinstance(wanted, list) or not all(isinstance(name, str) for name in wanted):
            hint = 'write {"needs": ["ask"]}'
            return _refused("needs", "field-invalid", "$.needs", "'needs' is a list of names", hint)
        known = others(self.request)
        found = [name for name in dict.fromkeys(wanted) if name in known]
        if not found:
            message = f"{cut(wanted[0], 80) if wanted else 'nothing'} needs no leave, or cannot be allowed"
            hint = f"write the plan; what can be allowed: {', '.join(known) or 'nothing'}"
            return _refused("needs", "field-invalid", "$.needs", message, hint)
        return Detour(
            "needs", error=needs_error(found, [spec.name for spec in self.request.tools if spec.effect == "read"])
        )

    # --- lookups -------------------------------------------------------------------------------------------------

    async def _look_up(self, wanted: Any) -> Detour:
        if self.reads is None or not self.request.reads:
            hint = "plan the reads as steps, and bind their outputs"
            return _refused("reads", "read-not-allowed", "$.reads", "no tool may be called while planning", hint)
        results, problems = await self.reads.make(wanted, self.request)
        if problems:
            return Detour("reads", None, problems)
        self._show(replace(self.request, read_results=[*self.request.read_results, *results]))
        return Detour("reads", self.request)


def needs_error(names: Sequence[str], reads: Sequence[str]) -> PlannerNeeds:
    """The error for parts that somebody has to allow; ``reads``: the tools that read and could be allowed."""
    options = command(names, reads[:_NAMED_READS])
    settings = [name for name in names if name != READS]
    python = f"may_use={settings!r}" if settings else "PlannerSettings(reads=…)"
    return PlannerNeeds(
        f"the model needs what it may not use: {', '.join(names)}",
        hint=f"allow it: saga plan … {options} (in Python {python}; [planner] in saga.toml)",
        needs=list(names),
        options=options,
    )


def _refused(came: str, code: str, path: str, message: str, hint: str) -> Detour:
    return Detour(came, None, [Problem(code, path, message, hint)])


def _question(given: Any) -> dict[str, Any] | None:
    """A question in its checked form; None if it is none."""
    if not isinstance(given, Mapping):
        return None
    name, text, options = given.get("name"), given.get("question"), given.get("options")
    if not (isinstance(name, str) and _NAME.fullmatch(name) and isinstance(text, str) and text.strip()):
        return None
    made: dict[str, Any] = {"name": name, "question": printable(text.strip(), _QUESTION_CHARS)}
    if options is not None:
        if not isinstance(options, Sequence) or isinstance(options, str):
            return None
        texts = [printable(str(each), _OPTION_CHARS) for each in options[:_MAX_OPTIONS]]
        if texts:
            made["options"] = texts
    return made
