"""A barrier in SQLite, PostgreSQL and MariaDB: once for each key, never after the undo, nothing of a call that failed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from saga_engine.barriers import SqlBarrier
from saga_engine.errors import OutcomeUnknown, ToolError
from tests.barriers.conftest import Shop
from tests.support.servers import GIVE_UP_S


def test_a_repeated_call_returns_the_result_of_the_first(shop: Shop) -> None:
    """The work of a key is done once; every repeat returns what was returned then."""
    assert shop.book("1A") == {"seat": "1A"}
    assert shop.book("2B") == {"seat": "1A"}
    assert shop.seats() == ["1A"]


def test_keys_are_compared_byte_by_byte(shop: Shop) -> None:
    """Two keys that differ in case are two calls, also where a database compares texts loosely by default."""
    upper, lower = f"{shop.key}:A", f"{shop.key}:a"
    assert shop.barrier.call(upper, lambda db: 1) == 1
    assert shop.barrier.call(lower, lambda db: 2) == 2


@pytest.mark.parametrize(
    "result", [None, 7, "gr\u00fc\u00df \u4f60\u597d \u0000", [], {"a": [1.5, None, True]}, "x" * 100_000]
)
def test_a_result_comes_back_as_it_was(shop: Shop, result: Any) -> None:
    """The first call and its repeat return the same JSON, whatever the database's own encoding of text is."""
    assert shop.barrier.call(shop.key, lambda db: result) == result
    assert shop.barrier.call(shop.key, lambda db: pytest.fail("it ran again")) == result


@pytest.mark.parametrize("error", [ToolError("full"), KeyError("seat"), OutcomeUnknown("no answer")])
def test_a_call_that_fails_leaves_nothing(shop: Shop, error: Exception) -> None:
    """What the work raises is raised, neither effect nor key is left, and the same key can be used again."""

    def work(db: Connection) -> None:
        db.execute(text("INSERT INTO bookings (seat) VALUES ('1A')"))
        raise error

    with pytest.raises(type(error)) as raised:
        shop.barrier.call(shop.key, work)
    assert raised.value is error
    assert (shop.seats(), shop.rows()) == ([], [])
    assert shop.book("2B") == {"seat": "2B"}


def test_a_result_that_reports_a_failure_leaves_nothing(shop: Shop) -> None:
    """``"success": false`` is 'not done', so it is rolled back and not stored as the result of the key."""

    def work(db: Connection) -> dict[str, Any]:
        db.execute(text("INSERT INTO bookings (seat) VALUES ('1A')"))
        return {"success": False, "error_code": "full"}

    assert shop.barrier.call(shop.key, work) == {"success": False, "error_code": "full"}
    assert (shop.seats(), shop.rows()) == ([], [])


def test_a_result_that_is_no_json_leaves_nothing(shop: Shop) -> None:
    """A result that cannot be stored is refused before anything is committed."""

    def work(db: Connection) -> object:
        db.execute(text("INSERT INTO bookings (seat) VALUES ('1A')"))
        return object()

    with pytest.raises(ToolError) as raised:
        shop.barrier.call(shop.key, work)
    assert (raised.value.error_code, raised.value.definite) == ("result_not_json", False)
    assert (shop.seats(), shop.rows()) == ([], [])


def test_an_error_of_the_database_is_not_done(shop: Shop) -> None:
    """A refused statement rolled back is *not done* in this attempt; it never leaves the call in doubt."""
    with pytest.raises(ToolError) as raised:
        shop.barrier.call(shop.key, lambda db: db.execute(text("INSERT INTO bookings (seat) VALUES (NULL)")))
    assert (raised.value.error_code, raised.value.retryable, raised.value.definite) == ("database_error", False, False)
    assert shop.rows() == []


def test_an_undo_runs_once(shop: Shop) -> None:
    """An undo receives the result of its call; a repeat returns the result of the first undo and does nothing."""
    shop.book("1A")
    assert shop.cancel() == {"cancelled": "1A"}
    assert shop.seats() == []
    with shop.engine.begin() as db:
        db.execute(text("INSERT INTO bookings (seat) VALUES ('1A')"))  # somebody else took the seat
    assert shop.cancel() == {"cancelled": "1A"}
    assert shop.seats() == ["1A"]


def test_an_undo_without_its_call_does_nothing_and_bars_the_call(shop: Shop) -> None:
    """The undo of a call that has not arrived does nothing; the call is refused when it arrives later."""
    assert shop.barrier.undo(shop.key, lambda db, booked: pytest.fail("nothing is to be undone")) is None
    for _ in range(2):
        with pytest.raises(ToolError) as raised:
            shop.book("1A")
        assert (raised.value.error_code, raised.value.retryable) == ("call_undone", False)
        assert "before it arrived" in raised.value.message
    assert shop.seats() == []
    assert shop.cancel() is None


def test_a_call_that_is_repeated_after_its_undo_is_refused(shop: Shop) -> None:
    """The result of a call that was undone is not returned as if its effect were there."""
    shop.book("1A")
    shop.cancel()
    with pytest.raises(ToolError, match="happened and was undone") as raised:
        shop.book("1A")
    assert raised.value.error_code == "call_undone"
    assert shop.seats() == []


def test_an_undo_that_fails_can_be_repeated(shop: Shop) -> None:
    """A failed undo leaves the effect and the key as they were."""
    shop.book("1A")

    def work(db: Connection, booked: Any) -> None:
        db.execute(text("DELETE FROM bookings"))
        raise ToolError("not now", retryable=True)

    with pytest.raises(ToolError, match="not now"):
        shop.barrier.undo(shop.key, work)
    assert (shop.seats(), shop.rows()) == (["1A"], ["done"])
    assert shop.cancel() == {"cancelled": "1A"}


def test_a_probe_answers_from_the_table(shop: Shop) -> None:
    """``None``: it did not happen, and may still. Else its result, or ``{}`` if it had none."""
    assert shop.barrier.probe(shop.key) is None
    assert shop.rows() == []
    shop.book("1A")
    assert shop.barrier.probe(shop.key) == {"seat": "1A"}
    other = f"{shop.key}:none"
    shop.barrier.call(other, lambda db: None)
    assert shop.barrier.probe(other) == {}
    barred = f"{shop.key}:barred"
    shop.barrier.undo(barred, lambda db, booked: None)
    assert shop.barrier.probe(barred) is None


def _two_at_once(first: Any, second: Any, inside: threading.Event, go_on: threading.Event) -> list[Any]:
    """Begin ``first``; when its transaction is open, begin ``second``, and let ``first`` go on. Returns what both said."""
    said: list[Any] = [None, None]

    def run(place: int, what: Any) -> None:
        try:
            said[place] = what()
        except ToolError as error:
            said[place] = error.error_code

    threads = [threading.Thread(target=run, args=(0, first)), threading.Thread(target=run, args=(1, second))]
    threads[0].start()
    assert inside.wait(GIVE_UP_S)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(GIVE_UP_S)
        assert not thread.is_alive()
    return said


@pytest.mark.parametrize("second", ["call", "undo", "probe"])
@pytest.mark.parametrize("fails", [False, True])
def test_two_at_once(shop: Shop, second: str, fails: bool) -> None:
    """While a call's transaction is open, its repeat, its undo and its probe wait for how it ends."""
    inside, go_on = threading.Event(), threading.Event()

    def work(db: Connection) -> dict[str, str]:
        db.execute(text("INSERT INTO bookings (seat) VALUES ('1A')"))
        inside.set()
        assert go_on.wait(GIVE_UP_S)
        if fails:
            raise ToolError("full", error_code="full")
        return {"seat": "1A"}

    others = {"call": lambda: shop.book("2B"), "undo": shop.cancel, "probe": lambda: shop.barrier.probe(shop.key)}
    said = _two_at_once(lambda: shop.barrier.call(shop.key, work), others[second], inside, go_on)
    happened, not_happened = {
        "call": ({"seat": "1A"}, {"seat": "2B"}),
        "undo": ({"cancelled": "1A"}, None),
        "probe": ({"seat": "1A"}, None),
    }[second]
    assert said == (["full", not_happened] if fails else [{"seat": "1A"}, happened])
    left = {"call": ["2B"] if fails else ["1A"], "undo": [], "probe": [] if fails else ["1A"]}[second]
    assert shop.seats() == left


def test_an_undo_that_waits_for_another_undo_does_nothing(shop: Shop) -> None:
    """Two undos of one call at the same time: the second returns the result of the first."""
    shop.book("1A")
    inside, go_on = threading.Event(), threading.Event()

    def work(db: Connection, booked: Any) -> dict[str, int]:
        inside.set()
        assert go_on.wait(GIVE_UP_S)
        return {"refund": 7}

    refused = lambda: shop.barrier.undo(shop.key, lambda db, booked: pytest.fail("it ran again"))  # noqa: E731
    said = _two_at_once(lambda: shop.barrier.undo(shop.key, work), refused, inside, go_on)
    assert said == [{"refund": 7}, {"refund": 7}]


def test_many_at_once(shop: Shop) -> None:
    """Of many threads that make one call, one does the work; each has its result, or is told to try again."""
    said: list[Any] = []

    def run(seat: str) -> None:
        while True:
            try:
                said.append(shop.book(seat))
            except ToolError as error:  # a deadlock that the database has ended, for example
                if not error.retryable:
                    raise
            else:
                return

    threads = [threading.Thread(target=run, args=(f"{seat}A",)) for seat in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GIVE_UP_S)
    assert len(said) == 8
    assert shop.seats() == [said[0]["seat"]]
    assert all(each == said[0] for each in said)


def test_work_that_commits_by_itself_is_in_doubt(shop: Shop) -> None:
    """An effect without its result is neither done nor not done: the call is unknown, and so is every repeat."""

    def work(db: Connection) -> None:
        db.execute(text("INSERT INTO bookings (seat) VALUES ('1A')"))
        db.commit()

    for asked in (
        lambda: shop.barrier.call(shop.key, work),
        lambda: shop.book("2B"),
        shop.cancel,
        lambda: shop.barrier.probe(shop.key),
    ):
        with pytest.raises(OutcomeUnknown) as raised:
            asked()
        assert raised.value.error_code == "barrier_left_open"
    assert shop.seats() == ["1A"]


def test_a_session_of_the_orm_joins_the_transaction(shop: Shop) -> None:
    """An ORM session that is bound to the connection, and even commits, is committed by the barrier alone."""

    def work(db: Connection) -> dict[str, str]:
        with Session(bind=db) as session:
            session.execute(text("INSERT INTO bookings (seat) VALUES ('1A')"))
            session.commit()
        raise ToolError("full")

    with pytest.raises(ToolError, match="full"):
        shop.barrier.call(shop.key, work)
    assert (shop.seats(), shop.rows()) == ([], [])


def test_a_commit_that_fails_is_unknown(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to a commit is lost: the outcome is unknown, and the same key settles it."""
    commit = shop.engine.dialect.do_commit

    def lost(connection: Any) -> None:
        commit(connection)
        raise OperationalError("COMMIT", None, Exception("the line went dead"))

    with monkeypatch.context() as broken:
        broken.setattr(shop.engine.dialect, "do_commit", lost)
        with pytest.raises(OutcomeUnknown) as raised:
            shop.book("1A")
    assert raised.value.error_code == "commit_unknown"
    assert shop.book("2B") == {"seat": "1A"}
    assert shop.seats() == ["1A"]


def test_old_rows_are_purged(shop: Shop) -> None:
    """``purge`` deletes the rows of calls that are older than that, and no others."""
    shop.book("1A")
    assert shop.barrier.purge(3600) == 0
    assert shop.rows() == ["done"]
    with shop.engine.begin() as db:
        wanted = text("UPDATE saga_barrier SET created_at = created_at - 7200 WHERE call_key = :key")
        db.execute(wanted, {"key": shop.key})
    assert shop.barrier.purge(3600) == 1
    assert shop.rows() == []


@pytest.mark.parametrize("key", ["", "x" * 256, "schl\u00fcssel", 7])
def test_what_can_be_no_key_is_refused(key: Any) -> None:
    """A key that a database could cut or compare loosely is refused before anything is done."""
    barrier = SqlBarrier(create_engine("sqlite://"))
    for asked in (
        lambda: barrier.call(key, lambda db: 1),
        lambda: barrier.undo(key, lambda db, _: 1),
        lambda: barrier.probe(key),
    ):
        with pytest.raises(ToolError) as raised:
            asked()
        assert raised.value.error_code == "key_invalid"


def test_an_undo_needs_the_key_of_its_call() -> None:
    """A tool that is called by itself, and not as an undo, has no call to undo."""
    with pytest.raises(ToolError) as raised:
        SqlBarrier(create_engine("sqlite://")).undo(None, lambda db, booked: None)
    assert (raised.value.error_code, raised.value.retryable) == ("nothing_to_undo", False)


def test_a_database_that_cannot_be_reached_is_not_done(tmp_path: Any) -> None:
    """No connection: nothing was done in this attempt, and it may be repeated."""
    barrier = SqlBarrier(create_engine(f"sqlite:///{tmp_path}/no/such/folder/shop.db"))
    with pytest.raises(ToolError) as raised:
        barrier.call("key", lambda db: 1)
    assert (raised.value.error_code, raised.value.retryable, raised.value.definite) == ("database_error", True, False)
