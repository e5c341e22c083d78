"""Mutations of before-images and drift."""

from __future__ import annotations

from tests.promises.breaking import Mutation

_IMAGES = "saga_engine/core/images.py"
_OVERWRITES = (('else "drift"\n    return', 'else "undo"\n    return'),)

OF_IMAGES = [
    # 46
    Mutation(
        "tests/core/test_simulation.py::test_no_stranger_is_overwritten",
        "drift is overwritten",
        _IMAGES,
        _OVERWRITES,
    ),
    Mutation(
        "tests/core/test_mutants.py::test_the_simulation_of_images_catches",
        "strangers write nothing",
        "tests/core/image_simulation.py",
        (("if self.dice.random() < 0.06 * self.trouble:", "if self.dice.random() < 0:"),),
        only="drift",
    ),
    Mutation(
        "tests/kill/test_images.py::test_a_strangers_value_survives_kills",
        "drift is overwritten",
        _IMAGES,
        _OVERWRITES,
    ),
    Mutation(
        "tests/test_before_images.py::test_drift_is_asked_about",
        "drift is overwritten",
        _IMAGES,
        _OVERWRITES,
        quick=True,
    ),
]
