"""Mutations of the spans."""

from __future__ import annotations

from tests.promises.breaking import Mutation

OF_TELEMETRY = [
    Mutation(
        "tests/telemetry/test_killed.py::test_each_attempt_once_whoever_is_killed",
        "what another process exported is exported again",
        (("max(exported.get(str(span.epoch), 0), ", "max(0, "),),
    ),
    Mutation(
        "tests/telemetry/test_killed.py::test_a_receiver_that_is_away_costs_no_saga_anything",
        "what the receiver refuses counts as taken",
        (("is SpanExportResult.SUCCESS\n", "is not None\n"),),
        hangs=True,
    ),
]
