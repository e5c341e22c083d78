"""Links that give one answer: what they are bound to, and who can make them."""

from __future__ import annotations

import base64
import json
import time

import pytest

from saga_engine.errors import SettingInvalid, SignatureInvalid
from saga_engine.hooks.links import PATH, Links
from saga_engine.ports.machine_clock import machine_clock
from tests.hooks.questions import a_question

KEY, OTHER = "k" * 32, "another-key-of-more-than-32-characters"
URL = "https://saga.example.com"
APPROVAL = a_question(kind="approval", options=("approve", "deny"), error=None, params={"amount": 5})


def token(links: Links, option: str = "approve", **changes) -> str:
    return links.of(a_question(**{"kind": "approval", "options": ("approve", "deny")} | changes), "ops")[
        option
    ].rpartition("/")[2]


def test_a_link_says_which_answer_to_which_question_and_who_got_it() -> None:
    """Both answers have a link, each for itself; `by` names the reader and the link."""
    links = Links(URL, KEY)
    found = links.of(APPROVAL, "ops")
    assert list(found) == ["approve", "deny"]
    assert all(url.startswith(URL + PATH) for url in found.values())
    link = links.read(found["deny"].rpartition("/")[2])
    assert link[:6] == ("", "trip-42", "", "hotel:f:1", "deny", "ops")
    assert link.by == f"link:ops#{link.name}"
    assert link.name not in found["deny"]


@pytest.mark.parametrize("place", range(7))
def test_whatever_is_altered_in_a_link_makes_it_none(place: int) -> None:
    """Tenant, saga, identity, question, option, reader and end are signed: another value of any is refused."""
    links = Links(URL, KEY)
    text, _, signature = token(links).partition(".")
    told = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    told[place] = told[place] + 1 if place == 6 else f"{told[place]}x"
    altered = base64.urlsafe_b64encode(json.dumps(told, separators=(",", ":")).encode()).rstrip(b"=").decode()
    with pytest.raises(SignatureInvalid):
        links.read(f"{altered}.{signature}")


@pytest.mark.parametrize("given", ["", ".", "a.b", "ä.ö", "x" * 5000, "null.", "e30."])
def test_what_is_no_link_is_refused_in_words(given: str) -> None:
    """Nothing that comes in a path makes it fail otherwise."""
    with pytest.raises(SignatureInvalid):
        Links(URL, KEY).read(given)


def test_a_key_is_replaced_while_the_links_of_both_are_valid() -> None:
    """The first key makes, each reads; once the old one is gone its links are none."""
    old, both, new = Links(URL, OTHER), Links(URL, [KEY, OTHER]), Links(URL, [KEY])
    assert both.read(token(old)).option == "approve"
    assert new.read(token(both)).option == "approve"
    with pytest.raises(SignatureInvalid):
        new.read(token(old))


def test_a_link_lives_no_longer_than_its_question() -> None:
    """The life counts from its making; an approval that expires earlier ends it."""
    now_ms = time.time_ns() // 1_000_000
    links = Links(URL, KEY, life_s=3600)
    assert now_ms + 3_600_000 <= links.read(token(links)).ends_ms <= now_ms + 3_700_000
    assert links.read(token(links, expires_ms=now_ms + 5)).ends_ms == now_ms + 5


def test_only_what_is_reserved_for_a_person_has_links() -> None:
    """A claim of what happened, an undo by hand or a free answer is not given by one tap."""
    links = Links(URL, KEY)
    assert links.of(a_question(), "ops") == {}
    assert links.of(a_question(kind="deferred", options=()), "ops") == {}
    offered = a_question(kind="compensation", options=("approve", "deny", "undone", "accept"))
    assert list(links.of(offered, "ops")) == ["approve", "deny"]
    assert list(links.of(a_question(kind="ask", options=("yes", "no")), "ops")) == ["yes", "no"]
    assert links.of(a_question(kind="ask", options=("answer",)), "ops") == {}


def test_a_page_is_acted_on_for_an_hour_for_its_link_and_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of a page fits no other link, no other call, no later time, and none that was made up."""
    links = Links(URL, [KEY, OTHER])
    one, other = token(links), token(links, "deny")
    key = links.page_key(one, "call")
    assert links.fits_page(key, one, "call")
    assert not links.fits_page(key, other, "call")
    assert not links.fits_page(key, one, "another")
    for wrong in ("", "1", f"{time.time_ns() // 1_000_000}.x", "ä.b", f"9{key}"):
        assert not links.fits_page(wrong, one, "call")
    later = time.time_ns() + 3_700 * 10**9
    monkeypatch.setattr(machine_clock, "time_ns", lambda: later)
    assert not links.fits_page(key, one, "call")


@pytest.mark.parametrize(
    ("url", "keys"),
    [
        ("ftp://x", KEY),
        ("https://", KEY),
        ("https://x?a=b", KEY),
        ("https://x:port", KEY),
        ("https://旅", KEY),
        (URL, "short"),
        (URL, []),
    ],
)
def test_what_cannot_make_links_is_refused(url: str, keys: str | list[str]) -> None:
    """At start, and without the key in the words."""
    with pytest.raises(SettingInvalid) as raised:
        Links(url, keys)
    assert KEY not in str(raised.value)
    assert KEY not in repr(Links(URL, KEY))
