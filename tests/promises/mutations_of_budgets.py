"""How the promise of budgets could be broken."""

from __future__ import annotations

from tests.promises.breaking import Mutation

OF_BUDGETS = [
    # 96
    *(
        Mutation(f"tests/guards/test_budgets.py::{test}", breaks, changes, quick=test.startswith("test_a_call"))
        for test, breaks, changes in (
            (
                "test_a_plans_own_budget_fails_the_step_beyond_it_and_undoes_the_rest",
                "a plan's budget does not reach its calls",
                (("return None if free else state.plan.max_cost", "return None if free else {}"),),
            ),
            (
                "test_a_call_counts_once_however_often_it_is_tried",
                "a retry counts again",
                (
                    ("known = spent.get(call.idempotency_key)", "known = None"),
                    (
                        "        if known is not None:\n            return known\n        amounts = {unit",
                        "        amounts = {unit",
                    ),
                ),
            ),
            (
                "test_calls_side_by_side_spend_no_more_than_one_after_the_other",
                "calls side by side do not see each other",
                (("return self._sagas.setdefault(saga_id, asyncio.Lock())", "return asyncio.Lock()"),),
            ),
        )
    ),
    Mutation(
        "tests/doors/test_doors.py::test_each_door_keeps_each_promise",
        "a call beyond a budget is made",
        (
            (
                "if isinstance(amounts, NotDone):\n            return amounts",
                "if isinstance(amounts, NotDone):\n            amounts = {}",
            ),
        ),
    ),
]
