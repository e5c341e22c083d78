"""Mutations of an operator's stops, of tools that come from servers, and of the gateway."""

from __future__ import annotations

from tests.promises.breaking import Mutation

OF_SOURCES = [
    # 48
    Mutation(
        "tests/sagas/test_stops.py::test_after_a_stop_has_returned_no_next_call_starts",
        "appends do not tell of stops",
        (("if stops > 0 then", "if false then"),),
        only="all",
    ),
    Mutation(
        "tests/sagas/test_stops.py::test_undos_go_on",
        "a held call is not given back to a saga that is cancelled",
        (("call.wanted is not None and not call.wanted()", "False"),),
        hangs=True,
    ),
    Mutation(
        "tests/sagas/test_stops.py::test_a_stop_survives_the_death_of_every_process",
        "a stop is not stored",
        (("    call('HSET', KEYS[1], ARGV[2], ARGV[3])\n", ""),),
    ),
    Mutation(
        "tests/sagas/test_stops.py::test_the_name_of_a_tool_is_no_saga",
        "the name of a tool is taken for a saga that does not exist yet",
        (("if saga_id in tools():", "if saga_id is None:"),),
    ),
    # 49
    Mutation(
        "tests/mcp/test_calls.py::test_a_tool_that_changed_is_not_called",
        "the digest is not compared",
        ((" or tool.digest != self._digest", ""),),
    ),
    Mutation(
        "tests/gateway/test_attacks.py::test_a_write_that_nothing_takes_back_is_asked_about",
        "an agent is asked about no more than a plan",
        (("in _OF_AGENTS if of_agents else _RULES:", "in _RULES:"),),
    ),
    Mutation(
        "tests/mcp/test_calls.py::test_a_hint_makes_nothing_harmless",
        "nobody is asked about a tool without a manifest",
        (("        if not names:\n            continue", "        if names or not names:\n            continue"),),
    ),
    Mutation(
        "tests/mcp/test_calls.py::test_without_key_and_probe_an_operator_is_asked",
        "a lost connection is 'not done'",
        (
            (
                '        if self._it.effect == "read":\n            return ToolError',
                "        if True:\n            return ToolError",
            ),
        ),
    ),
    # 64
    Mutation(
        "tests/gateway/test_http.py::test_a_token_is_for_its_saga_alone",
        "a token opens every saga",
        (("if bound and named != bound:", "if False:"),),
    ),
    Mutation(
        "tests/gateway/test_http.py::test_a_connection_that_is_lost",
        "a lost connection goes unnoticed",
        (("visit.gone.set()", "pass"),),
    ),
    Mutation(
        "tests/gateway/test_engine.py::test_an_agent_reaches_its_own_sagas_alone",
        "a saga's tag is not looked at",
        (('return _tag(name) in summary.get("tags", ())', "return bool(summary)"),),
    ),
    Mutation(
        "tests/gateway/test_unsettled.py::test_a_saga_that_waits_for_an_operator_is_named_until_it_has_ended",
        "a saga that waits for an operator counts as one that has ended",
        (("            self._unsettled.append(before)", "            pass"),),
        only="stdio",
    ),
    # 82
    Mutation(
        "tests/mcp/test_lists.py::test_each_entry_of_a_list_is_checked_alone",
        "a list with an entry that cannot be read is refused as a whole",
        (('result["tools"] = list(self._readable(result["tools"]))', "pass"),),
    ),
    Mutation(
        "tests/mcp/test_lists.py::test_an_upgrade_blocks_no_undo",
        "an undo needs every entry of the list",
        (('result["tools"] = list(self._readable(result["tools"]))', "pass"),),
    ),
    Mutation(
        "tests/mcp/test_lists.py::test_accept_names_what_it_leaves_out_and_everything_else_starts",
        "a tool that cannot be used refuses its server",
        (
            (
                "            except ToolInvalid as error:\n                unusable[remote] = error.message\n",
                "            finally:\n                pass\n",
            ),
        ),
    ),
]
