"""Mutations of an operator's stops, and of tools that come from servers."""

from __future__ import annotations

from tests.promises.breaking import Mutation

_CALL = "saga_engine/sources/mcp/call.py"
_STOPS = "saga_engine/guards/stops.py"

OF_SOURCES = [
    # 48
    Mutation(
        "tests/test_stops.py::test_after_a_stop_has_returned_no_next_call_starts",
        "appends do not tell of stops",
        "saga_engine/stores/lua/append.lua",
        (("if stops > 0 then", "if false then"),),
        only="all",
    ),
    Mutation(
        "tests/test_stops.py::test_undos_go_on",
        "a held call is not given back to a saga that is cancelled",
        _STOPS,
        (("call.wanted is not None and not call.wanted()", "False"),),
        hangs=True,
    ),
    Mutation(
        "tests/test_stops.py::test_a_stop_survives_the_death_of_every_process",
        "a stop is not stored",
        "saga_engine/stores/lua/stop.lua",
        (("    call('HSET', KEYS[1], ARGV[2], ARGV[3])\n", ""),),
    ),
    # 49
    Mutation(
        "tests/mcp/test_calls.py::test_a_tool_that_changed_is_not_called",
        "the digest is not compared",
        _CALL,
        ((" or tool.digest != self._digest", ""),),
    ),
    Mutation(
        "tests/mcp/test_calls.py::test_a_hint_makes_nothing_harmless",
        "nobody is asked about a tool without a manifest",
        "saga_engine/policy/unlisted.py",
        (("    if not names:", "    if names or not names:"),),
    ),
    Mutation(
        "tests/mcp/test_calls.py::test_without_key_and_probe_an_operator_is_asked",
        "a lost connection is 'not done'",
        _CALL,
        (
            (
                '        if self._it.effect == "read":\n            return ToolError',
                "        if True:\n            return ToolError",
            ),
        ),
    ),
]
