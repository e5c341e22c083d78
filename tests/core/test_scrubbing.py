"""No spelling of a secret, and no beginning of one, is left in what is recorded."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.core.effects import Done, ErrorInfo, NotDone, Unknown
from saga_engine.core.scrubbing import Scrubber, scrubber
from saga_engine.tools.outcomes import bounded

TOKEN = 'to"ken/+ü\\7\t-s3cr3t&x=1'
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7VJTU\n-----END KEY-----\n"
SPELT = {
    "as it is": lambda value: value,
    "in JSON": lambda value: json.dumps({"token": value}),
    "in JSON with its own letters": lambda value: json.dumps({"token": value}, ensure_ascii=False),
    "in JSON in JSON": lambda value: json.dumps(json.dumps(value)),
    "by repr": lambda value: repr({"token": value}),
    "in a URL": lambda value: f"?t={quote(value)}",
    "in a query": lambda value: f"?t={quote_plus(value)}",
    "with everything escaped": lambda value: quote(value, safe=""),
    "in HTML": html.escape,
    "in hexadecimal": lambda value: value.encode().hex(),
    "in base64": lambda value: base64.b64encode(value.encode()).decode(),
    "in base64 behind a user": lambda value: base64.b64encode(f"ada:{value}".encode()).decode(),
    "in base64 behind two letters": lambda value: base64.b64encode(f"a:{value}".encode()).decode(),
    "in base64 for URLs": lambda value: base64.urlsafe_b64encode(f"ada:{value}!".encode()).decode(),
    "on one line": lambda value: value.replace("\n", " "),
    "without ends of lines": lambda value: value.replace("\n", ""),
    "with other ends of lines": lambda value: value.replace("\n", "\r\n"),
    "without white space around it": str.strip,
}


OTHERS = {TOKEN: "Z" * 9, KEY: KEY.replace("MIIE", "ZZZZ").replace("VJTU", "ZZZZ"), "plain-token-123": "Z" * 9}


def same(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def leaks(text: str, value: str, form: str) -> bool:
    """Whether eight characters in a row are still there of what in the spelling is the secret's own."""
    spelt, other = SPELT[form](value), SPELT[form](OTHERS[value])
    first = same(spelt, other)
    last = same(spelt[::-1], other[::-1])
    own = spelt[first : len(spelt) - last]
    return any(own[at : at + 8] in text for at in range(len(own) - 7))


@pytest.mark.parametrize("value", [TOKEN, KEY, "plain-token-123"], ids=["marks", "lines", "plain"])
@pytest.mark.parametrize("form", SPELT)
def test_every_spelling_becomes_the_marker(value: str, form: str) -> None:
    """Whoever echoes a secret may have quoted, escaped, encoded or joined it first."""
    found = Scrubber({"TOKEN": value}).text(f"before {SPELT[form](value)} after")
    assert "$secret.TOKEN" in found
    assert found.startswith("before ")
    assert found.endswith(" after")
    assert not leaks(found, value, form)


@pytest.mark.parametrize("value", [TOKEN, KEY], ids=["marks", "lines"])
@pytest.mark.parametrize("form", SPELT)
@given(shift=st.integers(0, 120))
def test_what_a_cut_left_of_it_is_gone_as_well(value: str, form: str, shift: int) -> None:
    """A message is cut before it is scrubbed: wherever in the secret that was, at most three characters are left."""
    spelt = SPELT[form](value)
    text = bounded("x" * (200 - shift) + spelt + "y" * 400, 200)
    found = Scrubber({"TOKEN": value}).text(text)
    assert not leaks(found, value, form)


@pytest.mark.parametrize("form", SPELT)
@given(shift=st.integers(0, 60))
def test_what_a_cut_left_at_a_beginning_is_gone_as_well(form: str, shift: int) -> None:
    """The end of a long text is shown behind a mark: a traceback, for example."""
    found = Scrubber({"TOKEN": TOKEN}).text("…" + SPELT[form](TOKEN)[shift:] + " tail")
    assert not leaks(found, TOKEN, form)


def test_a_line_of_a_key_is_a_secret() -> None:
    """An error that shows the line where a key file is wrong shows a part of the key."""
    assert Scrubber({"KEY": KEY}).text("bad line: MIIEvQIBADANBgkqhkiG9w0BAQEF") == "bad line: $secret.KEY"


def test_numbers_and_keys_of_objects() -> None:
    """A PIN comes back as a number, a token as the key of an object."""
    found = scrubber({"PIN": "123456", "T": "abc"}).value({"pin": 123456, "other": [1234567, True, None], "abc": 1.5})
    assert found == {"pin": "$secret.PIN", "other": [1234567, True, None], "$secret.T": 1.5}


def test_the_longest_secret_is_taken_first() -> None:
    """One secret may be a part of another."""
    assert Scrubber({"A": "abc", "B": "abcdef"}).text("abcdef abc") == "$secret.B $secret.A"


def test_whole_outcomes() -> None:
    """Output, code, message and suggestion; and nothing changes without secrets, or with an empty one."""
    found = scrubber({"T": "s3cr3t-value"})
    assert found.outcome(Done({"x": "s3cr3t-value"})) == Done({"x": "$secret.T"})
    error = ErrorInfo("s3cr3t-value", "no s3cr3t-value", "not s3cr3t-value", retryable=True)
    clean = ErrorInfo("$secret.T", "no $secret.T", "not $secret.T", retryable=True)
    assert found.outcome(NotDone(error, retryable=True)) == NotDone(clean, retryable=True)
    assert found.outcome(Unknown(error)) == Unknown(clean)
    assert scrubber({"T": ""}).outcome(Done("x")) == Done("x")


@given(st.text(max_size=200), st.text(min_size=12, max_size=40).filter(str.strip))
def test_texts_without_the_secret_stay_as_they_are(text: str, value: str) -> None:
    """What is not there is not replaced, but for a beginning of it before a mark of omission or at the end."""
    if any(part in text for part in (value[:4], "…", "...")):
        return
    known = Scrubber({"T": value})
    if not any(spelling[:4] in text for spelling, _ in known._known):
        assert known.text(text) == text
