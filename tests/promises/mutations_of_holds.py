"""How the promise of held resources could be broken."""

from __future__ import annotations

from tests.promises.breaking import Mutation

OF_HOLDS = [
    # 103
    Mutation(
        "tests/guards/test_holds.py::test_a_saga_holds_what_it_names_until_its_end",
        "a call does not ask whether another saga holds its resource",
        (
            (
                "if self._holding is not None and (refused := await self._holding.take(keys, call)) is not None:",
                "if False:",
            ),
        ),
        quick=True,
    ),
    Mutation(
        "tests/guards/test_holds.py::test_of_a_circle_the_youngest_is_undone",
        "nobody gives way",
        (
            ("if claim.skips and _is_younger(claim, found.others, call)", "if False and claim.skips"),
            ("if claim.skips and loop.time() >= circle_s:", "if False:"),
        ),
    ),
    Mutation(
        "tests/guards/test_hold_races.py::test_a_call_gives_back_nothing_that_another_call_of_its_saga_uses",
        "a call gives back what another call of its saga relies on",
        (("*fresh.pop(), claim.ticket)", '*fresh.pop(), "")'),),
    ),
    Mutation(
        "tests/guards/test_hold_races.py::test_what_a_rival_wrote_before_the_hold_is_the_before_image",
        "what was read before a resource was held is not read again",
        (("if fresh and reads and", "if False and reads and"),),
    ),
    Mutation(
        "tests/guards/test_hold_races.py::test_a_lease_that_is_lost_at_any_request",
        "a circle in which others are in doubt stands still",
        (("        if not circle:\n            return False", "        if True:\n            return False"),),
        only="9-before",
    ),
    Mutation(
        "tests/guards/test_holds.py::test_parent_and_child_are_one_holder",
        "a child is another family than its parent",
        (("if self._kin is None or not (standing.parent or standing.undo_of):", "if True:"),),
    ),
    Mutation(
        "tests/guards/test_hold_processes.py::test_a_process_that_is_killed_between_the_end_and_the_release",
        "nobody looks whether a holder has ended",
        (
            ("if status is None or status in SAGA_FINAL:\n                freed", "if False:\n                freed"),
            (
                "if status is None or status in SAGA_FINAL:\n                await store.unhold",
                "if False:\n                await store.unhold",
            ),
        ),
    ),
    Mutation(
        "tests/guards/test_hold_processes.py::test_random_sagas_with_rivals_and_kills",
        "two families that write hold one resource",
        (("elseif mode == 'w' or holder.mode == 'w' then", "elseif mode == 'w' and holder.mode == 'r' then"),),
    ),
]
