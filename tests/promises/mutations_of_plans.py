"""Mutations of what plans ask, compute and may use, and of the page that submits a model's plan."""

from __future__ import annotations

from tests.promises.breaking import Mutation

_WHOM = "tests/doors/test_addressees.py::test_every_way_to_ask_tells_whom"
_LEAVE = "tests/planner/test_leave.py::test_the_rest_needs_leave"
_GOAL = "tests/server/console/test_goals.py::"

OF_PLANS = [
    # 97
    Mutation(
        _WHOM,
        "a session's question has no addressee",
        (('"on_timeout": on_timeout, "to": to}', '"on_timeout": on_timeout}'),),
        only="session",
    ),
    Mutation(
        _WHOM, "hooks are not told whom a plan asks", (('        to=asked.to if asked else "",\n', ""),), only="plan"
    ),
    Mutation(
        "tests/doors/test_addressees.py::test_a_channel_of_some_addressees_takes_theirs_and_what_nobody_else_takes",
        "what no hook takes for its addressee is told to nobody",
        (
            (
                "            self.for_us(question) or not any(_wants(each, question) for each in self._others)\n",
                "            self.for_us(question)\n",
            ),
        ),
    ),
    Mutation(
        "tests/doors/test_addressees.py::test_each_list_of_questions_finds_those_of_an_addressee",
        "a list shows the questions to all addressees",
        (('str(question.get("to") or "").casefold() == to.casefold()', 'bool(question.get("to")) or not to'),),
    ),
    # 98
    Mutation(
        "tests/runtime/test_computing.py::test_no_turn_of_the_loop_computes_more_than_its_rounds",
        "a decision computes without end in the loop",
        (
            (
                "        if left < 0:\n            raise TooMuch\n",
                "        if left < -1_000_000:\n            raise TooMuch\n",
            ),
        ),
    ),
    # 99
    Mutation(
        _LEAVE,
        "the call for a late event needs no leave",
        (('if late is not None and "irreversible" not in may_use', "if False and late is not None"),),
    ),
    Mutation(
        "tests/planner/test_leave.py::test_a_description_names_a_notice_and_gives_no_leave",
        "a description gives leave",
        (("_takes_text(spec) and bool(_named(spec))", "bool(notice_kind(spec))"),),
    ),
    # 100
    Mutation(
        f"{_GOAL}test_scopes_other_people_and_other_sites",
        "anybody sees and submits anybody's plan",
        (("if found is None or found.owner != _owner(identity):", "if found is None:"),),
    ),
    Mutation(
        f"{_GOAL}test_a_goal_becomes_a_plan_by_rounds_and_is_submitted_after_a_look",
        "a plan is submitted without a look",
        (('if asking.planned is None or not fields.get("looked"):', "if asking.planned is None:"),),
    ),
    Mutation(
        f"{_GOAL}test_a_goal_that_is_too_long_is_refused_and_not_cut",
        "a long goal is cut",
        (
            (
                "        if not 1 <= len(goal) <= MAX_GOAL_CHARS:\n",
                "        goal = goal[:MAX_GOAL_CHARS]\n        if not goal:\n",
            ),
        ),
    ),
    Mutation(
        f"{_GOAL}test_a_revision_whose_goal_is_too_long_is_refused_and_not_cut",
        "a long goal of a revision is cut",
        (("    if len(whole) > MAX_GOAL_CHARS:\n", "    whole = whole[-MAX_GOAL_CHARS:]\n    if not whole:\n"),),
    ),
]
