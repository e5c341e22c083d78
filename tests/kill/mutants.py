"""Engines that are broken on purpose, to show that the kill matrix can fail. Applied in a child, after the fork.

The texts stand once in the package, wherever that is: ``tests/support/mutating.py``.
"""

from __future__ import annotations

from tests.support.mutating import Mutant, rewrite

#: A write without a key is simply sent again, and so is any other.
REPEAT_WHATEVER_IS_IN_DOUBT = rewrite(
    ('if spec.effect == "read" or (direction == COMPENSATE and spec.tolerates_absence):', "if True:")
)
_ANSWER_IS_LOST = (
    '        calls.doubt(state, index, direction, ErrorInfo("answer_lost", record.reason or _ANSWER_LOST), None)\n'
)
_FLIGHTS = "    for (index, direction), flight in list(state.in_flight.items()):\n"

MUTANTS: dict[str, Mutant] = {
    # The writer says 'ok' at once and writes later.
    "call before the intent is durable": rewrite(
        (
            "            self._flush_soon()\n        return future\n",
            """\
            self._flush_soon()
        early: asyncio.Future[Ack] = self._loop.create_future()
        early.set_result(Ack("ok", released=entry.release))
        return early
""",
        )
    ),
    # A resume starts them anew, as if they had never been sent.
    "forget the calls in flight": rewrite(
        (
            _ANSWER_IS_LOST,
            """\
        del state.in_flight[index, direction]
        call.doubt = None
        state.waiting[index, direction] = record.at
""",
        )
    ),
    # An intent is as good as a result.
    "take calls in flight for done": rewrite(
        (
            _FLIGHTS,
            f"""\
    for index, direction in list(state.in_flight):
        key = state.plan.steps[index].key
        output = {{"ref": f"i{{key}}"}}
        evolve(state, r.StepSucceeded(at=record.at, step=key, direction=direction, output=output))
{_FLIGHTS}""",
        )
    ),
    "repeat what is in doubt": REPEAT_WHATEVER_IS_IN_DOUBT,
    # The key does not survive the process.
    "another key in each process": rewrite(
        ("f{fallback}:{seed}", "f{fallback}:{seed}:{__import__('os').getpid()}"),
        ("c{undo_call}:{seed}", "c{undo_call}:{seed}:{__import__('os').getpid()}"),
        ("'c'}:{seed}", "'c'}:{seed}:{__import__('os').getpid()}"),
    ),
}
#: Each mutant, with the tools that show it.
CAUGHT_WITH = [
    ("call before the intent is durable", "keyed"),
    ("forget the calls in flight", "bare"),
    ("take calls in flight for done", "keyed"),
    ("repeat what is in doubt", "bare"),
    ("another key in each process", "keyed"),
]
