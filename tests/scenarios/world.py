"""The outside of a scenario: tools that answer as the scenario says, and a record of what stands."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from saga_engine import BreakerPolicy, RetryPolicy, Tool, ToolContext, ToolError
from tests.scenarios import notation

#: Waits that nobody feels. A test never depends on how long one takes.
_QUICK: Final = {"base_s": 0.001, "max_s": 0.001, "jitter": False}
_TOOL_LINE: Final = re.compile(r"([\w.]+)\(([^)]*)\)\s*(.*)")
_ANSWER_LINE: Final = re.compile(r"(\w+)((?:\s+[\w.]+=\S+)*)\s*:\s+(.*)")


class World:
    """All tools of a scenario. A write has an effect, named ``TOOL-VALUE``, until a tool with the param ``ref`` removes it."""

    def __init__(self) -> None:
        #: The effects that stand: the idempotency key of the call that made it, and its name.
        self._effects: list[tuple[str, str]] = []
        #: The calls since somebody last looked.
        self.calls: list[str] = []
        self.gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._outputs: dict[str, Any] = {}  # what a keyed tool answered, by key
        self._answers: list[tuple[str, dict[str, Any], list[str]]] = []
        self._probes: set[str] = set()
        self._keyed: set[str] = set()

    # --- reading -----------------------------------------------------------------------------------------------------

    def tool(self, line: str) -> Tool[..., Any]:
        """``NAME(param, param=DEFAULT) option=value …``, as a tool."""
        match = _TOOL_LINE.fullmatch(line.strip())
        assert match, f"no tool: {line}"
        name, listed, rest = match.groups()
        options = notation.words(rest).pairs
        tries = options.pop("retry", 1)
        policy = {"max_attempts": tries} if isinstance(tries, int) else tries
        options["retry"] = RetryPolicy(**{**_QUICK, **policy})
        if isinstance(options.get("breaker"), dict):
            options["breaker"] = BreakerPolicy(**options["breaker"])
        if "probe" in options:
            self._probes.add(options["probe"])
        if options.get("keyed"):
            self._keyed.add(name)
        return Tool(self._function(name, listed, read=options.get("effect") == "read"), name=name, **options)

    def _function(self, name: str, listed: str, *, read: bool) -> Any:
        async def function(**given: Any) -> Any:
            return await self._called(name, given.pop("ctx"), given, read=read)

        names = [each.strip() for each in listed.split(",") if each.strip()]
        parameters = [
            inspect.Parameter(each.rstrip("?"), inspect.Parameter.KEYWORD_ONLY, default=None)
            if each.endswith("?")
            else inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY)
            for each in names
        ]
        parameters.append(inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=ToolContext))
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        function.__annotations__ = {"ctx": ToolContext}
        function.__name__ = name
        return function

    def answer(self, line: str) -> None:
        """``TOOL param=value: ANSWER then ANSWER``: what calls with these params get, in order; ``done`` after that."""
        match = _ANSWER_LINE.fullmatch(line.strip())
        assert match, f"no answer: {line}"
        tool, params, answers = match.groups()
        self._answers.append((tool, notation.words(params).pairs, answers.split(" then ")))

    # --- being called ------------------------------------------------------------------------------------------------

    async def _called(self, tool: str, ctx: ToolContext, params: dict[str, Any], *, read: bool) -> Any:
        shown = ", ".join(str(value) for value in params.values() if value is not None)
        self.calls.append(f"{tool}({shown})")
        answer = self._next(tool, params)
        if answer.startswith("at "):
            _, gate, answer = answer.split(" ", 2)
            await self.gates[gate].wait()
        word, _, detail = answer.partition(" ")
        if word == "not-done":
            raise ToolError(_filled(detail, params), error_code=detail.split()[0], retryable=False)
        if word == "try-again":
            raise ToolError(detail, error_code=detail, retryable=True)
        if word == "unreachable":
            raise ConnectionRefusedError("nobody listens")
        if word == "lost-before":
            raise ConnectionResetError("the line went dead before anything happened")
        if word == "raises":
            raise RuntimeError(detail)
        if word == "hang":
            await asyncio.Event().wait()
        output = self._happens(tool, ctx, params, "" if word == "raises-after" else detail, read=read)
        if word == "raises-after":
            raise RuntimeError(detail)
        if word == "lost-after":
            raise ConnectionResetError("the line went dead after it happened")
        assert word == "done", f"no answer of a tool: {answer}"
        return output

    def _next(self, tool: str, params: Mapping[str, Any]) -> str:
        for name, wanted, answers in self._answers:
            if name == tool and wanted.items() <= params.items() and answers:
                return answers[0].removeprefix("always ") if answers[0].startswith("always ") else answers.pop(0)
        return "done"

    def _happens(self, tool: str, ctx: ToolContext, params: dict[str, Any], detail: str, *, read: bool) -> Any:
        key = ctx.idempotency_key
        if tool in self._probes:
            return self._outputs.get(key)
        if read:
            return json.loads(_filled(detail, params)) if detail else {"found": next(iter(params.values()), None)}
        if "ref" in params:
            gone = [at for at, each in enumerate(self._effects) if params["ref"] in each]
            if gone:
                del self._effects[gone[-1]]
            return {}
        if key not in self._outputs or tool not in self._keyed:
            name = "-".join([tool, *(value for value in params.values() if isinstance(value, str))][:2])
            output = json.loads(_filled(detail, params)) if detail else {"ref": name}
            self._effects.append((key, output.get("ref", name)))
            self._outputs[key] = output
        return self._outputs[key]

    # --- looking -----------------------------------------------------------------------------------------------------

    def seen(self) -> list[str]:
        """The calls since the last look."""
        calls, self.calls = self.calls, []
        return calls

    @property
    def remaining(self) -> str:
        """What stands outside, in the order in which it came to be."""
        return ", ".join(name for _, name in self._effects) or "none"


def _filled(text: str, params: Mapping[str, Any]) -> str:
    """The text with the values of params in the place of their names in double braces."""
    for name, given in params.items():
        text = text.replace("{{" + name + "}}", str(given))
    return text
