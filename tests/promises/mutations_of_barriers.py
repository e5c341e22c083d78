"""Mutations of the barrier in a tool's own database."""

from __future__ import annotations

from tests.promises.breaking import Mutation

_TESTS = "tests/barriers/test_barrier.py"
_SAGAS = "tests/barriers/test_sagas.py"
_CLAIM = "                    claim(db, self.table, key, OPEN)\n                    return finish("
_CLAIM_APART = _CLAIM.replace("return", 'db.exec_driver_sql("COMMIT")\n                    return')
_BAR = "                    claim(db, self.table, key, REFUSED)\n                return None"
_NO_BAR = "                    if look(db, self.table, key) is None:\n                        return None\n                    raise Taken"
_REPEAT = (
    "                row = self._row(key)\n            if row is not None:\n                return answer_to_call(row)"
)
_REPEATS = (
    "                row = None\n            with _transaction(self._engine) as db:\n                return work(db)"
)
_ONCE = "                    if row is not None and row.state == DONE:\n                        return finish("

OF_BARRIERS = [
    # 41
    Mutation(
        f"{_TESTS}::test_a_repeated_call_returns_the_result_of_the_first",
        "a key that is taken is no obstacle",
        ((_REPEAT, _REPEATS),),
        only="sqlite",
    ),
    Mutation(
        f"{_TESTS}::test_an_undo_without_its_call_does_nothing_and_bars_the_call",
        "a call whose key is barred is answered as if it had happened",
        (("    if row.state == DONE:\n", "    if row.state in (DONE, REFUSED):\n"),),
        only="sqlite",
    ),
    Mutation(
        f"{_TESTS}::test_a_call_that_is_repeated_after_its_undo_is_refused",
        "a call that was undone is answered with its result",
        (("    if row.state == DONE:\n", "    if row.state in (DONE, UNDONE):\n"),),
        only="sqlite",
    ),
    Mutation(
        f"{_TESTS}::test_an_undo_runs_once",
        "an undo runs as often as it is called",
        ((_ONCE, _ONCE.replace("== DONE", "in (DONE, UNDONE)")),),
        only="sqlite",
    ),
    Mutation(
        f"{_SAGAS}::test_a_process_that_dies_books_once_and_undoes_once",
        "the key is committed before the effect",
        ((_CLAIM, _CLAIM_APART),),
        only="in-the-call",
    ),
    Mutation(
        f"{_SAGAS}::test_a_call_that_arrives_after_its_undo_is_refused",
        "an undo without its call leaves no mark",
        ((_BAR, _NO_BAR),),
    ),
]
