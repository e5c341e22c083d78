"""Mutations of before-images, drift and undos of several calls."""

from __future__ import annotations

from tests.promises.breaking import Mutation

_FIRST_AGAIN = (("    place = places[done]\n", "    place = places[0]\n"),)
_OVERWRITES = (('else "drift"\n    return', 'else "undo"\n    return'),)

OF_IMAGES = [
    # 46
    Mutation(
        "tests/core/test_simulation.py::test_no_stranger_is_overwritten",
        "drift is overwritten",
        _OVERWRITES,
    ),
    Mutation(
        "tests/core/test_mutants.py::test_the_simulation_of_images_catches",
        "strangers write nothing",
        (),
        elsewhere=(
            (
                "tests/core/image_simulation.py",
                "if self.dice.random() < 0.06 * self.trouble:",
                "if self.dice.random() < 0:",
            ),
        ),
        only="drift",
    ),
    Mutation(
        "tests/kill/test_images.py::test_a_strangers_value_survives_kills",
        "drift is overwritten",
        _OVERWRITES,
    ),
    Mutation(
        "tests/test_before_images.py::test_drift_is_asked_about",
        "drift is overwritten",
        _OVERWRITES,
        quick=True,
    ),
    Mutation(
        "tests/test_before_images.py::test_a_read_that_ended_while_the_store_wrote_is_not_made_twice",
        "a read whose result nobody looked at yet is made again",
        (("known = chain(under_way, (effect for effect, _ in ended))", "known = chain(under_way)"),),
    ),
    Mutation(
        "tests/test_undo_calls.py::test_every_call_happens_in_order_under_its_own_key",
        "an undo goes on with its first call",
        _FIRST_AGAIN,
    ),
    Mutation(
        "tests/test_undo_calls.py::test_an_operator_answers_about_one_call_or_the_whole_undo",
        "what an operator says of one call counts for all",
        (("if not compensation", "if True or not compensation"),),
    ),
    Mutation(
        "tests/temporal/test_sagas.py::test_an_undo_of_several_calls",
        "an undo goes on with its first call",
        _FIRST_AGAIN,
    ),
]
