"""Asks the user of an agent's client to approve a call (elicitation), if the operator allows that.

The question is an operator's and is in the journal before the client hears of it; this is one more way to answer it.
What the client answers counts for that one question alone: the gateway has asked it, a call has the same params, and
the question is still open. Whatever else the client does leaves the question open.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mcp import MCPError
from mcp_types import CallToolRequestParams, ElicitRequestFormParams, ElicitResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from saga_engine.api import Coordinator
from saga_engine.errors import DecisionRefused
from saga_engine.gateway.work import Pending, changes
from saga_engine.loggers import logger_of
from saga_engine.plan.values import canonical, digest, printable

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

_log = logger_of("saga_engine.gateway")

#: Larger params are not shown to a user, who would approve what he has not seen.
_PARAMS_CHARS: Final = 2_000
_MESSAGE_CHARS: Final = 500
_FIELD: Final = "answer"
_KEY: Final = "approval"
#: The questions that a gateway has put to clients of the newer era and remembers.
_MOST: Final = 1_000
#: Who answered, in the journal.
BY: Final = "client"


@dataclass(frozen=True, slots=True)
class Said:
    """What a client's user said. ``word``: approve or deny, else empty; ``asked``: the mark of the question."""

    word: str
    asked: str

    @classmethod
    def of(cls, result: ElicitResult, asked: str) -> Said:
        """That of a client's answer, whose content counts only if it was accepted."""
        word = (result.content or {}).get(_FIELD)
        return cls(str(word) if result.action == "accept" and word in ("approve", "deny") else "", asked)


def can_be_asked(ctx: ServerRequestContext[Any]) -> bool:
    """Whether the client has said that it can show its user a form."""
    said = ctx.session.client_capabilities
    way = None if said is None else said.elicitation
    return way is not None and (way.form is not None or way.url is None)


class Clients:
    """The questions that a gateway has put to its clients. ``wait_s``: how long a client of the older era may take."""

    def __init__(self, coordinator: Coordinator, wait_s: float) -> None:
        self._coordinator = coordinator
        self._wait_s = wait_s
        self._asked: dict[str, tuple[str, str]] = {}  # by state: what was asked, and about which request

    def brought(self, params: CallToolRequestParams) -> Said | None:
        """What the user said to a question, if a request of the newer era brings that. A state counts once."""
        asked, request = self._asked.pop(params.request_state or "", ("", ""))
        said = (params.input_responses or {}).get(_KEY)
        return Said.of(said, asked) if request == _request(params) and isinstance(said, ElicitResult) else None

    def question(
        self, ctx: ServerRequestContext[Any], params: CallToolRequestParams, waits: Pending
    ) -> dict[str, Any] | None:
        """The answer that makes a client of the newer era ask its user; None: it is none, or cannot be asked this."""
        form = _form(waits)
        if form is None or ctx.session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return None
        state = secrets.token_urlsafe(16)
        self._asked[state] = _mark(waits), _request(params)
        while len(self._asked) > _MOST:
            del self._asked[next(iter(self._asked))]
        shown = form.model_dump(by_alias=True, exclude_none=True, mode="json")
        request = {"method": "elicitation/create", "params": shown}
        return {"resultType": "input_required", "inputRequests": {_KEY: request}, "requestState": state}

    async def said(self, ctx: ServerRequestContext[Any], waits: Pending) -> Said | None:
        """What the user of a client of the older era says; None: nothing, or an operator was quicker.

        The form is withdrawn when its time is over, when an operator answers, and when this is cancelled.
        """
        form = _form(waits)
        if form is None or ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return None
        asking = asyncio.ensure_future(ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_id))
        answered = asyncio.create_task(self._answered_elsewhere(waits))
        try:
            await asyncio.wait([asking, answered], timeout=self._wait_s, return_when=asyncio.FIRST_COMPLETED)
            return Said.of(asking.result(), _mark(waits)) if asking.done() else None
        except (MCPError, ValueError) as error:
            _log.info("saga %s: the client cannot ask its user (%s)", waits.saga_id, type(error).__name__)
            return None
        finally:
            asking.cancel()
            answered.cancel()
            await asyncio.gather(asking, answered, return_exceptions=True)

    async def take(self, waits: Pending, said: Said) -> bool:
        """Answer the question; False: an operator was quicker."""
        if said.asked != _mark(waits) or not said.word:
            return True
        if not await self._is_open(waits):
            return False
        try:
            await self._coordinator.resolve(waits.saga_id, waits.step, said.word, by=BY)
        except DecisionRefused:
            _log.info("saga %s: call %s was answered by an operator meanwhile", waits.saga_id, waits.step)
            return False
        return True

    async def _is_open(self, waits: Pending) -> bool:
        body: Mapping[str, Any] = (await self._coordinator.show(waits.saga_id)).body
        return _mark(waits) in [_mark(Pending(waits.saga_id, str(it["step_id"]), it)) for it in body["questions"]]

    async def _answered_elsewhere(self, waits: Pending) -> None:
        """Return when the question is closed, or a message that may close it is there."""
        store, until = self._coordinator.store, asyncio.get_running_loop().time() + self._wait_s
        head = await store.head(waits.saga_id)
        while not head.messages and await self._is_open(waits) and await changes(store, waits.saga_id, head, until):
            head = await store.head(waits.saga_id)


def _mark(waits: Pending) -> str:
    """What an answer is bound to: the question about this call, its tool and its params."""
    question = waits.question
    return digest([waits.saga_id, waits.step, question.get("call"), question.get("tool"), question.get("params")])


def _request(params: CallToolRequestParams) -> str:
    return digest([params.name, params.arguments])


def _form(waits: Pending) -> ElicitRequestFormParams | None:
    """What the user is asked; None for what only an operator can answer."""
    question = waits.question
    params = question.get("params")
    if question.get("kind") != "approval" or len(canonical(params)) > _PARAMS_CHARS:
        return None
    why = printable(str((question.get("error") or {}).get("message", "")), _MESSAGE_CHARS)
    shown = printable(json.dumps(params, ensure_ascii=True), 4 * _PARAMS_CHARS)
    schema = {
        "type": "object",
        "properties": {_FIELD: {"type": "string", "enum": ["approve", "deny"], "title": "Answer"}},
        "required": [_FIELD],
    }
    message = f"Call {waits.step} of saga {waits.saga_id} waits for approval: {question.get('tool')} {shown}. {why}"
    return ElicitRequestFormParams(message=message, requested_schema=schema)
