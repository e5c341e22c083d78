"""LangChain and LangGraph: an agent whose tools go through a session (extra ``langchain``).

``register`` declares an agent's tools to the coordinator, and ``saga_tools`` is the list that the agent gets instead::

    async with Coordinator.open(tools=register(tools, undo={"book": "cancel"})) as coordinator:
        async with coordinator.session("trip") as session:
            await create_agent(model, saga_tools(session, tools)).ainvoke(question)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from saga_engine.adapters.results import (
    FETCH,
    FETCH_DESCRIPTION,
    FETCH_SCHEMA,
    RESULT_BYTES,
    check_limit,
    page,
    shown_result,
)
from saga_engine.adapters.sync import SyncSession
from saga_engine.adapters.tool_adapter import FailedChecks, declared, require_known, specs, words
from saga_engine.errors import SagaError, SettingInvalid, ToolError
from saga_engine.plan.model_tools import described
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.runtime.session import Session
from saga_engine.tools.decorator import AnyTool

try:
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from pydantic_core import to_jsonable_python
except ImportError as missing:
    raise SettingInvalid("LangChain is not installed", hint="pip install 'saga-engine[langchain]'") from missing


def register(
    tools: Iterable[BaseTool],
    *,
    undo: Mapping[str, Any] | None = None,
    reads: Iterable[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    failed: FailedChecks = None,
) -> list[AnyTool]:
    """LangChain tools as tools of the coordinator, with their names, descriptions and schemas.

    ``undo``: by name, the tool that undoes a call. ``reads``: those that change nothing. ``options``: by name, other
    options of ``tool`` (``keyed``, ``timeout_s``, ``retry``, ...). ``failed``: decides whether a result is an error, as
    with ``tool``; one function for all tools, or functions by name. A tool is run without the agent's graph, so it
    cannot use what a graph injects. Raises ``ToolInvalid``, and ``SettingInvalid`` for an unknown name.
    """
    listed = list(tools)
    undo, options, reads = undo or {}, options or {}, list(reads)
    require_known([tool.name for tool in listed], undo, reads, options, failed if isinstance(failed, Mapping) else ())
    return [_registered(tool, undo, reads, options, failed) for tool in listed]


def _registered(
    tool: BaseTool,
    undo: Mapping[str, Any],
    reads: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    failed: FailedChecks,
) -> AnyTool:
    # A tool that answers its own errors with a text would turn a failure into a success.
    bare = tool.model_copy(update={"handle_tool_error": False, "handle_validation_error": False})

    async def call(**params: Any) -> Any:
        return to_jsonable_python(await bare.ainvoke(params), fallback=str)

    schema = convert_to_openai_tool(tool)["function"].get("parameters") or {"type": "object", "properties": {}}
    return declared(call, tool.name, tool.description, schema, undo, reads, options, failed)


def saga_tools(
    session: Session | SyncSession,
    tools: Iterable[Any],
    *,
    irreversible: Iterable[str] = (),
    offer_undos: bool = False,
    result_bytes: int | None = RESULT_BYTES,
) -> list[BaseTool]:
    """Tools for an agent; each of its calls is a call of the session. A ``SyncSession`` is for blocking agents.

    ``tools``: LangChain's, or names of the coordinator's; those named in ``irreversible`` write, have no undo, and may
    be called nevertheless. Tools that only undo or probe others are left out unless ``offer_undos``: the engine calls
    them. A call that was not done reaches the model as a ``ToolMessage`` with the status ``error``;
    an error that the model cannot correct is raised and ends the run. A result over ``result_bytes`` (as JSON) reaches
    the model in its cut form with a reference; the tool ``saga_fetch``, which the list then also contains, reads pages
    of it. None: results are never cut. Raises ``ToolMissing`` and ``SettingInvalid``.
    """
    inner, final = session.session if isinstance(session, SyncSession) else session, set(irreversible)
    found = specs(inner.catalog, tools, undos=offer_undos)
    check_limit(result_bytes, [spec.name for spec in found])
    listed = [_offered(session, spec, irreversible=spec.name in final, limit=result_bytes) for spec in found]
    return listed if result_bytes is None else [*listed, _fetching(session, result_bytes)]


def _offered(session: Session | SyncSession, spec: ToolSpec, *, irreversible: bool, limit: int | None) -> BaseTool:
    about: dict[str, Any] = {
        "name": spec.name,
        "description": described(spec) or spec.name,
        "args_schema": spec.input_schema,
        "handle_tool_error": True,
        "infer_schema": False,
    }
    if isinstance(session, SyncSession):

        def call(**params: Any) -> Any:
            try:
                step, output = session.numbered_call(spec.name, params, irreversible=irreversible)
            except SagaError as error:
                raise _for_the_model(error) from error
            return shown_result(step, output, limit)

        return StructuredTool.from_function(func=call, **about)

    async def acall(**params: Any) -> Any:
        try:
            step, output = await session.numbered_call(spec.name, params, irreversible=irreversible)
        except SagaError as error:
            raise _for_the_model(error) from error
        return shown_result(step, output, limit)

    return StructuredTool.from_function(coroutine=acall, **about)


def _fetching(session: Session | SyncSession, limit: int) -> BaseTool:
    about: dict[str, Any] = {
        "name": FETCH,
        "description": FETCH_DESCRIPTION,
        "args_schema": FETCH_SCHEMA,
        "handle_tool_error": True,
        "infer_schema": False,
    }

    async def fetch(ref: str, path: str = "$", offset: int = 0) -> Any:
        inner = session.session if isinstance(session, SyncSession) else session
        try:
            return page(inner, ref, path, offset, limit=limit)
        except ToolError as error:
            raise ToolException(f"{error.message} ({error.suggestion})") from error

    if isinstance(session, SyncSession):

        def fetch_now(ref: str, path: str = "$", offset: int = 0) -> Any:
            return session.run(lambda: fetch(ref, path, offset))

        return StructuredTool.from_function(func=fetch_now, **about)
    return StructuredTool.from_function(coroutine=fetch, **about)


def _for_the_model(error: SagaError) -> Exception:
    told = words(error)
    return error if told is None else ToolException(told)
