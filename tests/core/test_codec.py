"""Records to bytes and back, today and after a field has been added."""

from __future__ import annotations

import json
import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.core import codec
from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo
from saga_engine.errors import JournalUnreadable
from tests.core import golden_records

GOLDEN = {
    b'{"k":"StepIntended","step":"1","at":5}': r.StepIntended(at=5, step="1"),
    b'{"k":"StepSucceeded","step":"1","output":{"order_id":"F1"},"at":6}': r.StepSucceeded(
        at=6, step="1", output={"order_id": "F1"}
    ),
    b'{"k":"StepInDoubt","step":"h","error":{"error_code":"timeout","message":"m"},"delay_ms":9,"direction":"compensate","at":7}': (
        r.StepInDoubt(at=7, step="h", error=ErrorInfo("timeout", "m"), delay_ms=9, direction="compensate")
    ),
    b'{"k":"SagaResumed","owner":"o","epoch":2,"at":8}': r.SagaResumed(at=8, owner="o", epoch=2),
}


@pytest.mark.parametrize("data", GOLDEN)
def test_golden_bytes(data: bytes) -> None:
    """Journals written by this version stay readable: these bytes never change their meaning."""
    assert codec.decode(data) == GOLDEN[data]
    assert codec.encode(GOLDEN[data], {}) == data


@pytest.mark.parametrize("data", golden_records.lines(), ids=lambda data: json.loads(data)["k"])
def test_every_kind_of_record_stays_readable(data: bytes) -> None:
    """Each kind, with a value in each of its fields: what was written is read back, and nothing of it is lost."""
    record = codec.decode(data)
    assert {name: value for name, value in msgspec.to_builtins(record).items() if name != "v"} == json.loads(data)
    assert codec.encode(record, {}) == data


def test_every_field_stands_in_a_golden_record() -> None:
    """A kind or a field that was added has a line from then on: ``python -m tests.core.golden_records`` adds it."""
    assert golden_records.missing() == {}


def test_every_kind_has_a_handler_and_a_tag() -> None:
    """No record can be written that cannot be read or folded."""
    from saga_engine.core.evolve import _HANDLERS

    kinds = set(typing.get_args(r.AnyRecord))
    assert set(_HANDLERS) == kinds - {r.SagaStarted}
    assert {kind.__struct_config__.tag for kind in kinds} == {kind.__name__ for kind in kinds}


def test_a_field_added_later_is_passed_over() -> None:
    """An older engine reads what a newer one wrote, as long as the meaning's version is the same."""
    assert codec.decode(b'{"k":"StepIntended","step":"1","at":5,"colour":"red"}') == r.StepIntended(at=5, step="1")


def test_a_field_that_was_not_there_yet_has_its_default() -> None:
    """A newer engine reads what an older one wrote: every field but the first ones has a default."""
    assert codec.decode(b'{"k":"QuestionResolved","question":"q","step":"1","decision":"retry","at":5}').message == ""


@pytest.mark.parametrize(
    "data",
    [
        b'{"k":"StepTeleported","at":1}',
        b'{"k":"StepIntended","step":"1","at":5,"v":2}',
        b"{",
        b'{"k":"StepIntended","at":"x"}',
    ],
)
def test_what_cannot_be_understood_is_refused(data: bytes) -> None:
    """An unknown kind, a newer version or a damaged record is an error with a hint, never a guess."""
    with pytest.raises(JournalUnreadable) as caught:
        codec.decode(data)
    assert caught.value.hint


def test_large_values_are_stored_once_and_come_back_whole() -> None:
    """A value over 32 KiB leaves the record; its digest leads back to it, and a false value is noticed."""
    values: dict[str, bytes] = {}
    output = {"rows": ["x" * 100] * 1000}
    record = r.StepSucceeded(at=1, step="1", output=output)
    data = codec.encode(record, values)
    codec.encode(r.StepSucceeded(at=2, step="2", output=output), values)
    assert len(data) < 1024
    assert len(values) == 1
    shown = codec.decode(data)
    ref = codec.refs_of(shown)["output"]
    assert ref.brief == {"rows": {"items": ["x" * 100] * 5, "total": 1000, "has_more": True}}
    assert ref.bytes == len(values[ref.digest])
    assert codec.inflate(shown, values) == record
    with pytest.raises(JournalUnreadable):
        codec.inflate(shown, {digest: b"[]" for digest in values})


def test_a_reference_of_an_older_journal_shows_its_summary() -> None:
    """A reference from before there were cut forms stays readable, and what it has is shown."""
    data = b'{"k":"StepSucceeded","step":"1","refs":{"output":{"digest":"d","bytes":40000,"summary":"[1,2"}},"at":6}'

    record = codec.abridge(codec.decode(data))

    assert isinstance(record, r.StepSucceeded)
    assert isinstance(record.output, codec.Stored)
    assert record.output.cut == "[1,2"


def test_a_large_plan_given_as_bytes_has_a_cut_form() -> None:
    """A plan that is stored beside its journal shows like any other large value."""
    plan = {"goal": "g", "steps": [{"step_id": at, "tool": "t" * 1000} for at in range(100)]}
    record = r.SagaStarted(
        plan=msgspec.Raw(json.dumps(plan).encode()), at=1, saga_id="s", digest="d", seed="e", input={"a": "b"}
    )
    values: dict[str, bytes] = {}

    shown = codec.decode(codec.encode(record, values))

    assert list(codec.refs_of(shown)) == ["plan"]
    assert codec.refs_of(shown)["plan"].brief["goal"] == "g"
    assert codec.refs_of(shown)["plan"].brief["steps"]["total"] == 100
    inflated = codec.inflate(shown, values)
    assert isinstance(inflated, r.SagaStarted)
    assert inflated.plan == plan


@given(st.integers(codec.INLINE_LIMIT - 2000, codec.INLINE_LIMIT + 100))
def test_what_is_stored_beside_the_journal_is_shown_cut(size: int) -> None:
    """Whoever holds the whole value shows it in the same form as whoever has only the journal."""
    output = "x" * (size - 2)
    values: dict[str, bytes] = {}
    longest = "s" * 64
    shown = codec.abridge(
        codec.decode(
            codec.encode(
                r.StepSucceeded(at=2**45, step=longest, output=output, via="deduplicated", source="i" * 200), values
            )
        )
    )
    held = codec.stored_form(output)

    assert isinstance(shown, r.StepSucceeded)
    assert (held is not None) is (size > codec.SHOWN_LIMIT)
    if isinstance(shown.output, codec.Stored):
        assert held is not None
        assert held.ref == shown.output.ref
        assert values


def test_a_value_of_just_under_the_limit_stays_inline() -> None:
    """Small values are never torn from their record."""
    values: dict[str, bytes] = {}
    record = r.StepSucceeded(at=1, step="1", output="x" * (codec.INLINE_LIMIT - 200))
    assert codec.decode(codec.encode(record, values)) == record
    assert not values


def test_a_plan_given_as_bytes_is_the_same_record() -> None:
    """A plan is encoded once, not once a saga."""
    plan = {"steps": [{"step_id": 1}]}
    fields = {"at": 1, "saga_id": "s", "digest": "d", "seed": "e"}
    raw = codec.encode(r.SagaStarted(plan=msgspec.Raw(json.dumps(plan).encode()), **fields), {})
    assert codec.decode(raw) == r.SagaStarted(plan=plan, **fields)
