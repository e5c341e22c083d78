"""JSON from the network is decoded value by value as it is at once, and what is too much is refused."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import msgspec
import pytest

from saga_engine.errors import RequestInvalid, ValueNotJson
from saga_engine.execution import incoming
from saga_engine.execution.incoming import decoded, require_few_values
from saga_engine.plan.effort import spending
from saga_engine.plan.strict_json import require_unique

SCALARS = [
    1,
    -2.5,
    1e300,
    None,
    True,
    False,
    "x",
    '"',
    "\\",
    '\\"',
    "ü",
    "\u2028",
    "a" * 5000,
    "\\" * 201 + '"',
    10**22,
    "",
]
KEYS = ["a", "b", "ü", 'q"', "\\", "\\\\"]
ODD = [b"", b",", b"}", b'"', b"\\", b" ", b"1", b"\x00", b"\xff", b":", b'"a":']


def drawn(dice: random.Random, depth: int = 0) -> Any:
    chance = dice.random()
    if depth < 4 and chance < 0.3:
        return [drawn(dice, depth + 1) for _ in range(dice.randrange(4))]
    if depth < 4 and chance < 0.6:
        return {f"{dice.choice(KEYS)}{at}": drawn(dice, depth + 1) for at in range(dice.randrange(4))}
    return dice.choice(SCALARS)


def spoilt(dice: random.Random, data: bytes) -> bytes:
    at = dice.randrange(len(data))
    return data[:at] + dice.choice(ODD) + data[at + dice.randrange(2) :]


def at_once(data: bytes) -> Any:
    found = msgspec.json.decode(data)
    require_unique(data)
    return found


async def outcome(work: Any) -> Any:
    try:
        return await work
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueNotJson, RecursionError):
        return "refused"


async def test_a_text_is_decoded_value_by_value_as_it_is_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of texts, half of them spoilt: the same values, and the same ones are refused."""
    monkeypatch.setattr(incoming, "_MANY", 0)  # none is short
    dice = random.Random(7)
    for _ in range(1_000):
        data = json.dumps(drawn(dice), ensure_ascii=dice.random() < 0.5, indent=dice.choice([None, 1])).encode()
        data = spoilt(dice, data) if dice.random() < 0.5 else data

        async def whole(data: bytes = data) -> Any:
            return at_once(data)

        assert await outcome(decoded(data)) == await outcome(whole()), data[:300]


@pytest.mark.parametrize(
    "data", [b"", b" ", b"[", b"[1,]", b"{}x", b"[1 2]", b'"', b"NaN", b"[NaN]", b'{"a":1,"a":2}', b"{1:2}"]
)
async def test_what_is_no_json_is_refused(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its length."""
    assert await outcome(decoded(data)) == "refused"
    monkeypatch.setattr(incoming, "_MANY", 0)
    assert await outcome(decoded(data)) == "refused"


async def test_too_many_values_are_refused() -> None:
    """Counted without the commas in texts; a depth that no plan has is refused as well."""
    most = incoming.MAX_VALUES
    data = b"[" + b",".join([b"1"] * most) + b"]"
    with pytest.raises(RequestInvalid, match="more than"):
        await decoded(data)
    with pytest.raises(RequestInvalid, match="more than"):
        await require_few_values(data, 1_000)
    assert await decoded(json.dumps([",:" * most]).encode()) == [",:" * most]
    await require_few_values(json.dumps([",:" * most]).encode(), 1_000)
    with pytest.raises(RequestInvalid, match="no JSON"):
        await require_few_values(b"[" * 600 + b"," * 2_000, 1_000)


async def test_the_last_member_twice_is_found_at_once() -> None:
    """A text with a hundred thousand members of one object (a count of each took hours)."""
    data = b"{" + b"".join(b'"%d":1,' % at for at in range(100_000)) + b'"99999":1}'
    with pytest.raises(ValueNotJson, match="'99999' occurs twice"):
        require_unique(data)


class Counted:
    """A pattern that counts what its matches read."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self.read = 0
        self._pattern = pattern

    def match(self, data: bytes, at: int) -> re.Match[bytes] | None:
        found = self._pattern.match(data, at)
        self.read += 0 if found is None else found.end() - at
        return found


@pytest.mark.parametrize("unit", ["\\" * 66, "\\" * 65 + '"', '\\"', "x" * 5_000 + '\\"', "\\u00fc"], ids=len)
def test_each_byte_of_a_text_is_read_once(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of escapes: twice the bytes are twice the work, which is asked about as often; it is what it is at once."""
    asked: list[int] = []
    for size in (300_000, 600_000):
        data = b'"' + unit.encode() * (size // len(unit)) + b'"'
        counted, rounds = Counted(incoming._PIECE), [0]
        monkeypatch.setattr(incoming, "_PIECE", counted)

        def spent(rounds: list[int] = rounds) -> None:
            rounds[0] += 1

        with spending(spent):
            assert incoming._sliced(data) == msgspec.json.decode(data)
        monkeypatch.undo()
        assert counted.read == len(data) - 2
        asked.append(rounds[0])
        with pytest.raises(msgspec.DecodeError):
            incoming._sliced(data[:-1])
    assert 1 <= asked[0] < 2_000
    assert abs(asked[1] - 2 * asked[0]) <= 2


@pytest.mark.parametrize(
    "number", ["0." + "1" * 6_000, "1" * 300 + "." + "0" * 9_000, "1" * 6_000, "x" * 6_000, "-" * 9]
)
async def test_a_long_number_is_what_it_is_in_a_short_text(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is decoded."""
    data = f"[1,{number}]".encode()
    found = await outcome(decoded(data))
    monkeypatch.setattr(incoming, "_MANY", 0)
    assert await outcome(decoded(data)) == found
    assert (found == "refused") == ("." not in number)
