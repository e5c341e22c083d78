"""A trace tells what the journal has, the same way each time; what was done to it shows; what must not be in it is not."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saga_engine.analysis.trace import Export, fill
from saga_engine.analysis.trace_file import Chain, checked, read, verify
from saga_engine.analysis.trace_signature import TraceKey
from saga_engine.core import codec
from saga_engine.core.codec import INLINE_LIMIT
from saga_engine.core.effects import Done, ErrorInfo, NotDone
from saga_engine.core.redaction import REDACTED, Redaction
from saga_engine.errors import JournalUnreadable, SettingInvalid, TraceBroken
from tests import tiers
from tests.core.large_values import big, stored
from tests.core.recording import Recording, lines_of
from tests.core.simulation import Simulation
from tests.core.stories import SPECS, STORIES, completed, doubtful, plan, undone

GOLDEN = Path(__file__).with_name("golden")


def bodies(lines: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", STORIES)
def test_golden_traces(name: str) -> None:
    """The format does not change by accident. Accept a change with SAGA_ACCEPT=1, and read the diff."""
    path = GOLDEN / f"trace_{name}.jsonl"
    made = b"".join(STORIES[name]().lines())
    if os.environ.get("SAGA_ACCEPT"):
        path.write_bytes(made)
    assert made == path.read_bytes()
    assert verify(made.splitlines(keepends=True)).broken is None


@pytest.mark.parametrize("name", STORIES)
def test_the_journal_is_in_it(name: str) -> None:
    """What is read from a trace are the records that it was made of."""
    saga = STORIES[name]()
    assert [entry.record for entry in saga.trace().entries] == saga.records


def test_simulated_journals_are_in_it() -> None:
    """The same for sagas with everything in them."""
    for seed in range(150):
        dice = random.Random(seed)
        simulation = Simulation(dice, dice.choice([0.3, 0.6, 1.0]))
        simulation.run()
        records = [codec.decode(data) for data in simulation.journal.data]
        (trace,) = read(lines_of(records, simulation.catalog))
        assert [entry.record for entry in trace.entries] == records


def test_a_call_is_told_whole() -> None:
    """One line an attempt, when it is settled: what was called, how, what came of it, when, and under which key."""
    calls = [body for body in bodies(completed().lines()) if body["type"] == "call"]
    assert [(call["step"], call["attempt"], call["status"]) for call in calls] == [
        ("find", 1, "succeeded"),
        ("book", 1, "retried"),
        ("book", 2, "succeeded"),
        ("pay", 1, "succeeded"),
    ]
    first, again = calls[1:3]
    assert first["params"] == again["params"] == {"room": "ref-find", "guest": "Zoë"}
    assert first["idempotency_key"] == again["idempotency_key"] == "trip:book:f:0123456789abcdef"
    assert first["fingerprint"] == again["fingerprint"]
    assert len(first["fingerprint"]) == 64
    assert first["error"] == {"error_code": "busy", "message": "later", "retryable": True}
    assert again["output"] == {"ref": "ref-book"}
    assert again["ended_ms"] - again["started_ms"] == again["duration_ms"] == 10
    assert (again["tool"], again["direction"], again["via"], again["fallback"]) == ("book", "forward", "call", 0)


def test_what_was_lost_in_a_crash_is_told() -> None:
    """The line of the new owner names the calls of which nobody knows what came."""
    told = bodies(undone().lines())
    (resumed,) = [body for body in told if body.get("record") == "SagaResumed"]
    assert [(lost["step"], lost["direction"], lost["tool"]) for lost in resumed["lost"]] == [
        ("book", "compensate", "unbook")
    ]
    assert [body["status"] for body in told if body["type"] == "call" and body["direction"] == "compensate"] == [
        "compensated"
    ]


def test_a_decision_is_told_with_who_and_why() -> None:
    """Probes, the question, the alert, and the answer."""
    told = bodies(doubtful().lines())
    (decided,) = [body for body in told if body.get("record") == "QuestionResolved"]
    assert (decided["by"], decided["note"], decided["output"]) == ("ada", "I looked", {"ref": "by hand"})
    assert [body["status"] for body in told if body["type"] == "probe"] == ["in_doubt"] * 3
    assert {"StepEscalated", "AlertIntended", "AlertSent"} <= {body.get("record") for body in told}


def test_a_saga_under_way_says_so() -> None:
    """The end of the saga, and of the file, tell that more will come."""
    *_, saga_end, end = bodies(STORIES["cancelled"]().lines())
    assert (saga_end["complete"], saga_end["status"], end["complete"]) == (False, "COMPENSATING", False)
    assert bodies(completed().lines())[-1]["complete"]


def test_the_same_journal_is_the_same_bytes() -> None:
    """No clock and no dice: whoever exports again can compare."""
    assert completed().lines() == completed().lines()


def test_several_sagas_share_one_chain() -> None:
    """A saga that is taken out of a file of many is missed."""
    export = Export()
    lines: list[str] = []
    sizes: list[int] = []
    for saga in (completed(), undone()):
        found = export.saga(saga.records, saga.catalog)
        sizes.append(len(found))
        lines += found
    data = [f"{line}\n".encode() for line in [*lines, export.end()]]
    assert [trace.status for trace in read(data)] == ["COMPLETED", "COMPENSATED"]
    assert verify(data[sizes[0] :]).broken is not None
    assert verify(data[: sizes[0]] + data[-1:]).broken is not None


def test_a_journal_that_does_not_begin_leaves_no_line() -> None:
    """What cannot be told is refused before anything of it is in the file, which can go on."""
    export = Export()
    with pytest.raises(JournalUnreadable):
        export.saga(completed().records[1:])
    saga = completed()
    assert [*export.saga(saga.records, saga.catalog), export.end()] == [
        line.decode().rstrip("\n") for line in saga.lines()
    ]


# --- what must not be in it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORIES)
def test_secrets_are_markers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of a secret is in no line; its marker is."""
    monkeypatch.setenv("TOKEN", "s3cr3t-value")
    text = b"".join(STORIES[name]().lines(full=True)).decode()
    assert "s3cr3t-value" not in text
    assert "$secret.TOKEN" in text


def texts(*rules: str, full: bool = False, declare: bool = True) -> str:
    return b"".join(b"".join(story().lines(*rules, full=full, declare=declare)) for story in STORIES.values()).decode()


def test_rules_reach_every_place_of_a_value() -> None:
    """A card number goes from the input through params to calls and undos: one rule for its field takes it out."""
    assert "4111-1111" in texts()
    assert "4111-1111" in texts("params.card")  # the input has it, too
    assert "4111-1111" not in texts("**.card")
    assert "4111-1111" not in texts("params.card", "input.card")


@pytest.mark.parametrize(
    ("rule", "gone"),
    [
        ("output.ref", '"output":{"ref":"ref-'),
        ("params.city", "Łódź"),
        ("params", "Łódź"),
        ("error.message", "no rooms"),
        ("error", "try another day"),
        ("by", '"ada"'),
        ("note", "changed my mind"),
        ("goal", "A room for"),
        ("owner", "host/1/2"),
        ("reason", "nothing is asked about"),
        ("input", '"Zoë"'),
        ("params.room", '"room":"7"'),
    ],
)
def test_a_rule_takes_out_what_it_names(rule: str, gone: str) -> None:
    """In facts, calls, plans and reports alike; the trace is still one."""
    assert gone in texts()
    found = texts(rule, *(["params.guest"] if rule == "input" else []))
    assert gone not in found
    assert REDACTED in found
    assert verify(found.encode().splitlines(keepends=True)[: len(completed().lines(rule))]).broken is None


def test_no_hash_betrays_what_was_left_out() -> None:
    """A short number can be found by trying: fingerprints, digests and approvals that depend on it are left out."""
    told = bodies(completed().lines("params.room"))
    prints = {body["step"]: body["fingerprint"] for body in told if body["type"] == "call"}
    assert prints["find"]
    assert prints["book"] is None
    assert prints["pay"] is None
    assert told[0]["digest"] == completed().records[0].digest  # a binding is no value: the plan is what it was
    assert bodies(completed().lines("params.city"))[0]["digest"] == REDACTED
    approval = [body for body in bodies(STORIES["approved"]().lines("note")) if body.get("kind") == "approval"]
    assert [body["call"] for body in approval] == [REDACTED]


def test_bindings_stay_where_params_are_left_out() -> None:
    """A binding is no value: the graph of the plan stays readable."""
    (step,) = [step for step in bodies(completed().lines("params"))[0]["plan"]["steps"] if step["step_id"] == "pay"]
    assert step["params"] == {
        "card": "$input.card",
        "token": "$secret.TOKEN",
        "for": REDACTED + "{$output.step_book.ref}",
    }
    assert step["rollback"]["params"] == {"ref": "$key"}


@pytest.mark.parametrize("rule", ["", "parms.card", "params..card", ".", "step", "params." + ".".join("a" * 40)])
def test_a_rule_that_names_nothing_is_refused(rule: str) -> None:
    """A typing error must not let a value through."""
    with pytest.raises(SettingInvalid):
        Redaction([rule])


@given(
    st.recursive(
        st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    ),
    st.lists(st.sampled_from(["a", "b", "*", "**", "0"]), max_size=3),
)
def test_rules_are_paths(value: Any, parts: list[str]) -> None:
    """What is left out is what the path leads to, and nothing else is changed."""

    def named(path: tuple[str, ...], rule: tuple[str, ...]) -> bool:
        if not rule:
            return not path
        if rule[0] == "**":
            return named(path, rule[1:]) or (bool(path) and named(path[1:], rule))
        return bool(path) and rule[0] in ("*", path[0]) and named(path[1:], rule[1:])

    def expected(item: Any, path: tuple[str, ...]) -> Any:
        if named(path, tuple(parts)):
            return REDACTED
        if isinstance(item, dict):
            return {key: expected(below, (*path, key)) for key, below in item.items()}
        if isinstance(item, list):
            return [expected(below, (*path, str(at))) for at, below in enumerate(item)]
        return item

    assert Redaction([".".join(["output", *parts])]).value("output", value) == expected(value, ())


# --- large and odd values -----------------------------------------------------------------------------------------------


def test_ten_megabytes_are_cut_unless_they_are_asked_for() -> None:
    """A large output or param stands in its cut form, with digest and size; --full has it whole."""
    output = {"ref": "x", "rows": ["y" * 1000] * 10_000}
    saga = big(output)
    records, values = stored(saga)
    size = len(json.dumps(output, separators=(",", ":")))
    assert size > 10_000_000
    short = lines_of([fill(record, values, outputs=False) for record in records], saga.catalog)
    assert sum(map(len, short)) < 50_000
    call = next(body for body in bodies(short) if body["type"] == "call")
    assert (call["output"]["rows"]["total"], call["output"]["rows"]["has_more"]) == (10_000, True)
    assert call["output_ref"]["bytes"] == size
    assert call["output_ref"]["digest"] in values
    intent = [body for body in bodies(short) if body["type"] == "intent"][1]
    assert intent["params_ref"]["bytes"] > 10_000_000
    assert intent["fingerprint"]
    whole = lines_of([fill(record, values, outputs=True) for record in records], saga.catalog, full=True)
    assert bodies(whole)[2]["output"] == output
    assert "output_ref" not in bodies(whole)[2]
    assert [entry.record for entry in next(read(whole)).entries] == saga.records


def test_a_value_is_redacted_before_it_is_cut() -> None:
    """Neither the cut form nor the digest is of a value with what a rule left out."""
    output = {"rows": [{"ssn": f"078-05-{at}", "x": "y" * 100} for at in range(1000)]}
    saga = big(output)
    records, values = stored(saga)
    export = Export(Redaction(["**.ssn"]))
    assert export.needs_outputs
    lines = export.saga([fill(record, values, outputs=True) for record in records], saga.catalog)
    text = "".join(lines)
    assert "078-05-" not in text
    assert not any(digest in text for digest in values)
    assert len(text) < 4 * INLINE_LIMIT


@given(st.text(max_size=40), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**63), 2**64 - 1))
@settings(max_examples=tiers.examples(40))
def test_any_text_and_number_comes_back(text: str, real: float, whole: int) -> None:
    """Unicode, control characters and the largest numbers are what they were; each line is one line."""
    if any(0xD800 <= ord(char) < 0xE000 for char in text):
        return
    saga = Recording(
        {"steps": [{"step_id": 1, "tool": "book", "params": {}}]},
        SPECS,
        {("1", "forward"): [NotDone(ErrorInfo("no", text or "m"), retryable=True), Done({text: [text, real, whole]})]},
    ).run()
    lines = saga.lines()
    assert all(line.count(b"\n") == 1 for line in lines)
    assert [entry.record for entry in next(read(lines)).entries] == saga.records


# --- tampering -----------------------------------------------------------------------------------------------------------

WHOLE = undone().lines()


KEY = TraceKey(b"0123456789abcdef" * 2)
SIGNED = undone().lines(key=KEY)


def relinked(lines: list[bytes], since: int, upto: int) -> list[bytes]:
    """The lines with hashes that fit again in those from ``since`` up to before ``upto``: docs/trace.md tells how."""
    made = lines[:since]
    last = b"" if since == 0 else hash_of(made[-1])
    for line in lines[since:upto]:
        body = re.sub(rb',"prev":"[0-9a-f]*"', b',"prev":"' + last + b'"', line[: line.rindex(b',"hash":"')]) + b"}"
        last = hashlib.sha256(body).hexdigest().encode()
        made.append(body[:-1] + b',"hash":"' + last + b'"}\n')
    return made + lines[upto:]


def hash_of(line: bytes) -> bytes:
    return line[line.rindex(b'"hash":"') + 8 :][:64]


def tampered(data: st.DataObject, lines: list[bytes]) -> tuple[str, list[bytes]]:
    """The file after one change by hand, and what was changed."""
    at = data.draw(st.integers(0, len(lines) - 1))
    how = data.draw(st.sampled_from(["flip", "drop", "swap", "double", "insert", "cut", "truncate"]))
    if how == "flip":
        place = data.draw(st.integers(0, len(lines[at]) - 1))
        changed = bytearray(lines[at])
        changed[place] ^= data.draw(st.integers(1, 255))
        lines[at] = bytes(changed)
    elif how == "drop":
        del lines[at]
    elif how == "swap":
        other = data.draw(st.integers(0, len(lines) - 1).filter(lambda other: other != at))
        lines[at], lines[other] = lines[other], lines[at]
    elif how == "double":
        lines.insert(at, lines[at])
    elif how == "insert":
        foreign = completed().lines()
        lines.insert(at, data.draw(st.sampled_from([foreign[at % len(foreign)], b"{}\n", b"\n", b"x"])))
    elif how == "cut":
        lines = lines[:at]
    else:
        keep = data.draw(st.integers(0, len(lines[at]) - 1))
        lines = [*lines[:at], lines[at][:keep]]
    # As a file is read: what has no line feed runs into the next line.
    return how, b"".join(lines).splitlines(keepends=True)


@settings(max_examples=tiers.examples(300), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_tampering_is_found(data: st.DataObject) -> None:
    """A byte that is changed, a line that is dropped, moved, doubled or added, a file that is cut: each is noticed."""
    how, lines = tampered(data, list(WHOLE))
    found = verify(lines)
    assert found.broken is not None, how
    assert found.broken.context["line"] <= len(WHOLE) + 2
    assert found.lines < found.broken.context["line"]


def changed_word(lines: list[bytes], at: int) -> list[bytes]:
    """One word of a line says something else; the line stays a line of a trace."""
    one, other = (
        (b'"type":"end"', b'"type":"end","x":1') if at == len(lines) - 1 else (b'"saga_id":', b'"x":1,"saga_id":')
    )
    assert one in lines[at]
    return [*lines[:at], lines[at].replace(one, other, 1), *lines[at + 1 :]]


@pytest.mark.parametrize("at", range(len(WHOLE) - 1))
def test_a_line_with_a_new_hash_is_found_by_the_next(at: int) -> None:
    """A line whose hash was computed again fits; the line after it names the old hash. So it is with several."""
    for upto in range(at + 1, len(WHOLE)):
        found = verify(relinked(changed_word(WHOLE, at), at, upto))
        assert found.broken is not None
        assert found.broken.message.startswith(f"line {upto + 1}: it does not follow the line before it")


WRONG = [None, 7, [], {}, "x", True]
#: What a line that begins or ends a saga, or the file, cannot do without.
FRAME = {
    "saga": ("type", "format", "saga_id"),
    "saga-end": ("type", "saga_id", "records", "status", "complete"),
    "end": ("type", "sagas", "lines", "complete"),
}


@pytest.mark.parametrize("at", range(len(WHOLE)))
def test_a_line_that_lacks_a_member_or_has_a_wrong_one_is_told(at: int) -> None:
    """Whoever computes the chain anew can leave out anything: the file is read, or its line is named. Nothing else."""
    body = json.loads(WHOLE[at])
    for name in body.keys() - {"hash", "prev"}:
        for value in ["left out", *WRONG]:
            changed = {key: value if key == name else old for key, old in body.items()}
            if value == "left out":
                del changed[name]
            line = json.dumps(changed, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            made = relinked([*WHOLE[:at], line, *WHOLE[at + 1 :]], at, len(WHOLE))
            try:
                assert [trace.status for trace in read(made)]
            except TraceBroken as broken:
                assert 0 < broken.context["line"] <= len(WHOLE)  # noqa: PT017 - either is right
            found = verify(made)
            if body["type"] in FRAME and name in FRAME[body["type"]] and value in ("left out", None, []):
                assert found.broken is not None, (name, value)


@pytest.mark.parametrize("at", range(len(WHOLE)))
def test_a_chain_without_a_key_can_be_computed_again(at: int) -> None:
    """What the chain does not promise: all hashes from the change to the end made anew. Only the last hash tells."""
    made = relinked(changed_word(WHOLE, at), at, len(WHOLE))
    found = verify(made)
    assert found.broken is None
    assert (found.signed, found.verified) == (False, False)
    assert found.last != hash_of(WHOLE[-1]).decode()


@pytest.mark.parametrize("at", range(len(SIGNED)))
def test_a_signed_trace_cannot_be_rewritten(at: int) -> None:
    """With all hashes made anew the signature does not fit, with the old one in its place, another key's or none."""
    made = relinked(changed_word(SIGNED, at), at, len(SIGNED))
    assert verify(made).broken is None
    found = verify(made, KEY).broken
    assert found is not None
    assert f"line {len(SIGNED)}: its signature does not fit: the trace was rewritten" in found.message
    end = json.loads(made[-1])
    line = made[-1][: made[-1].index(b',"signature"')] + b"}"
    other = TraceKey(b"another key, just as long as it must be")
    for signature, words in (
        (other.signature(line), "it names the key"),
        (other.signature(line) | {"key_id": KEY.id}, "was rewritten"),
        (end["signature"] | {"algorithm": "none"}, "is signed with 'none'"),
        (end["signature"] | {"value": None}, "was rewritten"),
        (end["signature"] | {"value": "\u00e9"}, "was rewritten"),
        ("", "no signature"),
        (None, "no signature"),
    ):
        said = json.dumps(signature, ensure_ascii=False, separators=(",", ":")).encode()
        forged_end = line[:-1] + (b"" if signature is None else b',"signature":' + said) + b',"hash":""}\n'
        forgery = relinked([*made[:-1], forged_end], len(made) - 1, len(made))
        refused = verify(forgery, KEY).broken
        assert refused is not None, signature
        assert words in refused.message


@pytest.mark.parametrize(
    ("was", "now"),
    [(b'"key_id"', b'"jey_id"'), (b'{"algorithm"', b'{"more":1,"algorithm"'), (b'"key_id":"', b'"key_id":"x')],
)
def test_what_stands_beside_the_value_of_a_signature_is_checked_too(was: bytes, now: bytes) -> None:
    """The value does not cover the signature's other fields, so they must be exactly those that the key writes."""
    changed = [*SIGNED[:-1], SIGNED[-1].replace(was, now)]
    assert changed != SIGNED
    assert verify(relinked(changed, len(changed) - 1, len(changed)), KEY).broken is not None


@settings(max_examples=tiers.examples(300), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_signed_trace_is_as_its_signer_wrote_it(data: st.DataObject) -> None:
    """Whatever is changed, and with any part of the chain computed again: it is broken for whoever has the key."""
    how, lines = tampered(data, list(SIGNED))
    assert verify(lines, KEY).broken is not None, how
    linked = [line for line in lines if b',"hash":"' in line and b',"prev":"' in line]
    if linked:
        again = relinked(linked, data.draw(st.integers(0, len(linked) - 1)), len(linked))
        assert again == SIGNED or verify(again, KEY).broken is not None, how


def test_a_signature_covers_its_whole_line() -> None:
    """Nothing can be slipped in between signature and hash, where a reader would take the later of two members."""
    body = SIGNED[-1][: SIGNED[-1].rindex(b',"hash":"')]
    for slipped in (b',"complete":false', b',"complete":true,"signature":{}', b',"x":{}'):
        forgery = relinked([*SIGNED[:-1], body + slipped + b',"hash":""}\n'], len(SIGNED) - 1, len(SIGNED))
        assert verify(forgery, KEY).broken is not None, slipped


def test_a_signature_is_asked_for_with_its_key() -> None:
    """The key's owner verifies; without the key it is seen and not verified; an unsigned trace is none of that key's."""
    last = bodies(SIGNED)[-1]
    whole = (len(SIGNED), (("trip", "COMPENSATED", True),), last["hash"], None)
    assert verify(SIGNED, KEY) == (*whole, True, True)
    assert verify(SIGNED) == (*whole, True, False)
    assert last["signature"]["key_id"] == KEY.id
    refused = verify(WHOLE, KEY)
    assert refused.broken is not None
    assert (refused.broken.message, refused.verified) == (f"line {len(WHOLE)}: it has no signature", False)
    assert SIGNED[:-1] == WHOLE[:-1]
    assert [trace.saga_id for trace in read(SIGNED)] == ["trip"]


def test_a_short_key_is_refused() -> None:
    """A key that can be guessed signs nothing."""
    with pytest.raises(SettingInvalid, match="at least 32 bytes, this one has 31"):
        TraceKey(b"x" * 31)


def test_the_place_is_named() -> None:
    """The first line that is not as it was written, counted from 1, and what is wrong with it."""
    changed = [*WHOLE]
    changed[4] = changed[4].replace(b'"step":"', b'"step":"x')
    found = verify(changed)
    assert found.broken is not None
    assert found.broken.message.startswith("line 5: it was changed")
    dropped = verify(WHOLE[:4] + WHOLE[5:]).broken
    assert dropped is not None
    assert "line 5: it does not follow" in dropped.message
    cut = verify(WHOLE[:-1]).broken
    assert cut is not None
    assert f"line {len(WHOLE)}: the file ends here" in cut.message
    assert verify(WHOLE)[:4] == (len(WHOLE), (("trip", "COMPENSATED", True),), bodies(WHOLE)[-1]["hash"], None)


def forged(*lines: dict[str, Any]) -> list[bytes]:
    """Lines with a chain that holds, whatever is in them."""
    made: list[bytes] = []
    last = ""
    for seq, body in enumerate(lines):
        data = json.dumps({"seq": seq, **body, "prev": last}, separators=(",", ":")).encode()
        last = hashlib.sha256(data).hexdigest()
        made.append(data[:-1] + f',"hash":"{last}"}}\n'.encode())
    return made


HEAD = {"type": "saga", "format": "saga-trace/1", "record": "SagaStarted", "saga_id": "s", "at": 1, "plan": {}}
HEAD |= {"digest": "d", "seed": "s"}
FOOT = {"type": "saga-end", "saga_id": "s", "records": 1, "complete": True, "status": "COMPLETED"}
LAST = {"type": "end", "sagas": 1, "lines": 3, "complete": True}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "cut short"),
        ([LAST | {"lines": 1}], "another number"),
        ([FOOT], "was to come"),
        ([HEAD | {"format": "saga-trace/2"}], "its format is 'saga-trace/2'"),
        ([HEAD | {"saga_id": 7}], "names no saga"),
        ([HEAD, HEAD], "has no end"),
        ([HEAD, FOOT | {"saga_id": "t"}], "another saga"),
        ([HEAD, FOOT | {"records": 2}], "number of records"),
        ([HEAD, FOOT, LAST | {"lines": 4}], "another number"),
        ([HEAD, FOOT | {"complete": False}, LAST], "does not say whether"),
        ([HEAD, FOOT, LAST, LAST], "after the end"),
        ([HEAD, {"type": 3}], "no line of a trace"),
        ([HEAD, {"type": "fact", "seq": "1"}], "no line of a trace"),
        ([HEAD, {name: value for name, value in FOOT.items() if name != "status"}], "how the saga ended"),
        ([HEAD, FOOT | {"complete": 1}], "how the saga ended"),
        ([HEAD, {"type": "fact", "saga_id": "s", "record": "StepTeleported"}], "does not know"),
        ([HEAD, {"type": "fact", "saga_id": "s", "record": ["x"]}], "does not know"),
        ([HEAD, {"type": "fact", "saga_id": "s", "record": "SagaStarted"}], "another kind"),
        ([HEAD, {"type": "fact", "saga_id": "s", "record": "StepIntended", "at": "x"}], "cannot be read"),
        ([HEAD, {"type": "fact", "saga_id": "s", "record": "SagaCompleted", "at": 1, "v": 2}], "version is 2"),
    ],
)
def test_a_hostile_trace_is_refused(lines: list[dict[str, Any]], words: str) -> None:
    """A chain can be forged; what it holds must still be a trace, and nothing worse than an error comes of it."""
    with pytest.raises(TraceBroken, match=words):
        list(read(forged(*lines)))


def test_a_line_of_nesting_is_refused() -> None:
    """A line may be as deep as it likes."""
    deep = b'{"a":' + b"[" * 200_000 + b"]" * 200_000
    line = deep + f',"hash":"{hashlib.sha256(deep + b"}").hexdigest()}"}}\n'.encode()
    with pytest.raises(TraceBroken):
        list(checked([line]))


def test_the_plan_of_the_stories_is_declared() -> None:
    """The header has the declarations of the saga's tools, if they were at hand."""
    header = bodies(completed().lines())[0]
    assert sorted(header["declared"]) == ["book", "find", "pay", "refund", "unbook"]
    assert header["declared"]["pay"]["probe"] == "paid"
    assert header["plan"] == plan()
    assert bodies(completed().lines(declare=False))[0]["declared"] == {}


def test_a_line_has_nothing_that_a_terminal_acts_on() -> None:
    """Texts come from models: marks that turn a line around, or control characters, are escaped; the values stay."""
    hostile = "a\u202eb\x9b31m\x7f\U000e0001\u2028 und ü 漢"
    chain = Chain()
    line = chain.line({"type": "step", "note": hostile})
    assert line.isprintable()
    assert "ü 漢" in line
    assert json.loads(line)["note"] == hostile
