"""How the promise could be broken that an undo sees what another saga wrote and put back."""

from __future__ import annotations

from tests.promises.breaking import Mutation

_AGAIN = "tests/isolation/test_same_again.py::"

OF_WRITES = [
    # 104
    Mutation(
        f"{_AGAIN}test_what_another_saga_put_back_is_drift",
        "a value that is the same is undone, whoever has written since",
        (('if judged == "undo" and (not news or', 'if judged == "undo" and (True or'),),
        quick=True,
        only="undo",
    ),
    Mutation(
        "tests/isolation/test_rival_writers.py::test_no_undo_overwrites_unseen_what_a_rival_wrote",
        "whatever another saga has written counts as taken back",
        (
            (
                "    if owner.undoing(index) is None or owner.status in (t.WAIVED, t.COMPENSATED):",
                "    if True:\n        return _BACK\n    if owner.status == t.WAIVED:",
            ),
        ),
    ),
    Mutation(
        f"{_AGAIN}test_without_a_rival_nobody_is_asked",
        "what was written before the step counts as written since",
        (("later = [write for write in writes if write.at_ms > since]", "later = list(writes)"),),
        only="failure",
    ),
    Mutation(
        f"{_AGAIN}test_a_write_after_the_answer_is_asked_about_again",
        "an answer holds for all later writes as well",
        (("    written: Sequence[int] = step.cleared.get(_WRITTEN, ())\n    return written", "    return (1 << 62,)"),),
    ),
    Mutation(
        "tests/isolation/test_rival_kills.py::test_a_saga_whose_process_died_after_its_write",
        "a repeat of a call in doubt takes the place of its last attempt",
        (("  if found[1] then\n    local at, by", "  if false then\n    local at, by"),),
    ),
    Mutation(
        "tests/isolation/test_rival_kills.py::test_a_rival_that_dies",
        "a write is noted only when its call has ended",
        (
            (
                "local turn = front()\nnote(turn)\n",
                "if ARGV[1] == 'give' and not ARGV[3] then\n  note(ARGV[2])\nend\nlocal turn = front()\n",
            ),
        ),
        only="written",
    ),
    Mutation(
        "saga_engine/testing/write_conformance.py::test_the_attempts_of_a_call_are_one_write",
        "a late attempt that was not made drops the write of the first one",
        (("if found and string.match(found, '(%S+)$') == nonce then", "if found then"),),
    ),
]
