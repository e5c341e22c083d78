"""CrewAI: the coordinator's tools for an agent of a crew, each call a call of the session.

::

    with sync_session("trip", tools=[book, cancel]) as session:
        agent = Agent(role="travel desk", goal="book", backstory="", tools=saga_tools(session))
        Crew(agents=[agent], tasks=[task]).kickoff()
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from saga_engine.adapters.routing import Offered, Router
from saga_engine.adapters.sync import SyncSession
from saga_engine.errors import SettingInvalid

try:
    from crewai.tools import BaseTool
    from crewai.utilities.pydantic_schema_utils import create_model_from_schema
    from pydantic import ConfigDict, PrivateAttr
except ImportError as missing:
    raise SettingInvalid("CrewAI is not installed", hint="pip install 'saga-engine[crewai]'") from missing


def saga_tools(session: SyncSession, names: Iterable[str] | None = None, **options: Any) -> list[BaseTool]:
    """The coordinator's tools, all but those that only undo or probe others, or the named ones.

    ``options`` are those of ``routing.Router``. A crew calls its tools in threads, so the session is one that blocks. A
    call that was not done is the text ``{"error": ...}``. CrewAI tells its model every exception of a tool: after one
    that the model cannot mend the session takes no more calls, and leaving its block raises.
    """
    return [_tool(session, each) for each in Router(session.session, **options).offered(names)]


def _never(*_: Any) -> bool:
    return False


class _SagaTool(BaseTool):  # type: ignore[misc]  # untyped where CrewAI is not installed
    model_config = ConfigDict(arbitrary_types_allowed=True)
    _call: Any = PrivateAttr()

    def _run(self, **params: Any) -> str:
        return str(self._call(params))


def _tool(session: SyncSession, offered: Offered) -> BaseTool:
    schema = create_model_from_schema(
        {**offered.schema, "title": offered.name},
        model_name=f"{offered.name}_args",
        __config__=ConfigDict(extra="allow"),
    )
    # CrewAI keeps results by name and arguments; the journal does that here, and a repeat may be meant.
    made = _SagaTool(name=offered.name, description=offered.description, args_schema=schema, cache_function=_never)
    made._call = lambda params: session.run(lambda: offered.call(params)).content  # noqa: SLF001 - of this module
    return made
