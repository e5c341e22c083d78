"""Lua as fast as the fake server could have it: most of the time of a test on the store in memory goes there.

The fake digests and compiles a script whenever it is run, collects Lua's garbage after each, and looks at all global names
before each command of one. Here a server compiles a script once, and collects after some hundred. A script that makes a
global name is refused by the real servers, on which the tests run every script, too.
"""

from __future__ import annotations

import functools
import hashlib
from types import SimpleNamespace
from typing import Any, Final

from fakeredis.commands_mixins import scripting_mixin
from fakeredis.commands_mixins.scripting_mixin import ScriptingCommandsMixin

_COLLECT: Final = "collectgarbage()"
_COLLECT_AFTER: Final = 200


class _Runtime:
    """The Lua of one fake server."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._compiled: dict[Any, Any] = {}
        self._run = 0
        self.table_from = runtime.table_from

    def execute(self, script: Any) -> Any:
        """Run a script, or collect the garbage if that is due."""
        if script == _COLLECT:
            self._run += 1
            return self._runtime.execute(script) if self._run % _COLLECT_AFTER == 0 else None
        chunk = self._compiled.get(script)
        if chunk is None:
            chunk = self._compiled[script] = self._runtime.compile(script)
        return chunk()


@functools.cache
def install() -> None:
    """For all fake servers of this process. A run of tests within another one finds it done."""
    whole = ScriptingCommandsMixin._get_server_runtime

    def quick(self: Any, server: Any) -> _Runtime:
        found: _Runtime | None = getattr(server, "_quick_lua", None)
        if found is None:
            found = server._quick_lua = _Runtime(whole(self, server))
        return found

    ScriptingCommandsMixin._get_server_runtime = quick
    scripting_mixin._check_for_lua_globals = lambda *_: None
    scripting_mixin.hashlib = SimpleNamespace(sha1=functools.lru_cache(hashlib.sha1))
