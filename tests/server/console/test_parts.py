"""The console's parts without a server: escaping, the two catalogues, colours, the timeline."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import saga_engine.server.console as room
from saga_engine.core import records as r
from saga_engine.core.effects import COMPENSATE, ErrorInfo
from saga_engine.planner.review_words import joined, said
from saga_engine.server.console.html import local_path, tag, text
from saga_engine.server.console.timeline import Row, Span, axis_of, timeline
from saga_engine.server.console.words import CATALOGUES as LANGUAGES
from saga_engine.server.console.words import Words, language_of

FOLDER = Path(room.__file__).parent


class Reader(HTMLParser):
    """What a browser makes of markup: its elements, and the text between them."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_data(self, data):
        self.text += data


TEXTS = st.text(st.characters(codec="utf-8"), max_size=60) | st.sampled_from(
    ["<script>alert(1)</script>", "\"' onload=alert(1) x='", "]]>--><!--", "</title></style>", "&lt;b&gt;", "\u202e<i>"]
)


@given(TEXTS, TEXTS)
def test_whatever_a_text_holds_it_is_text(inside, attribute):
    """A text is one text and an attribute one attribute, whatever a model wrote into them."""
    read = Reader(tag("p", {"title": attribute}, inside))
    assert [name for name, _ in read.elements] == ["p"]
    assert set(read.elements[0][1]) == {"title"}
    if inside.isprintable():
        assert read.text == inside
    if attribute.isprintable():
        assert read.elements[0][1]["title"] == attribute


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "data:text/html,x",
        "/a\nb",
        " /x",
        "",
    ],
)
def test_an_address_leads_to_this_server(address):
    """Neither a link nor the way back from a form leads anywhere else, whatever a request or a saga says."""
    assert "href" not in Reader(tag("a", {"href": address}, "x")).elements[0][1]
    assert local_path(address, "/otherwise") == "/otherwise"
    assert local_path("/ui/sagas?x=1") == "/ui/sagas?x=1"


@pytest.mark.parametrize(
    ("name", "attributes"), [("script", {}), ("style", {}), ("p", {"onclick": "x"}), ("p", {"style": "x"})]
)
def test_no_page_can_have_what_the_content_policy_forbids(name, attributes):
    """Scripts, inline styles and event handlers cannot be written at all."""
    with pytest.raises(ValueError, match="no "):
        tag(name, attributes)


def test_marks_that_turn_the_direction_of_text_are_shown_as_replaced():
    """A name cannot pretend to be another one by turning what follows it."""
    assert text("a\u202eb\x00c") == "a\ufffdb\ufffdc"
    assert text("退款 ✓") == "退款 ✓"


# --- words ---------------------------------------------------------------------------------------------------------


def test_a_sentence_of_a_review_is_said_in_each_language():
    """A sentence is said in each language with what stands in it; what nobody here wrote stays as it is."""
    follows = joined("joined.then", said("follows.runs", steps="pay"), said("follows.skips", steps="mail"))
    sentence = said("answered", option="yes", follows=follows)
    assert (Words("en").said(sentence), Words("zh").said(sentence)) == (
        "yes: runs pay; skips mail",
        "yes：执行 pay；跳过 mail",
    )
    assert Words("zh").said("what a tool's owner wrote") == "what a tool's owner wrote"


def test_every_word_that_a_page_asks_for_is_in_the_catalogues():
    """The keys in the code exist, also those of which only the beginning stands there."""
    asked = set()
    for path in FOLDER.glob("*.py"):
        asked |= set(re.findall(r"words\(\s*f?\"([^\"]+)\"", path.read_text()))
        asked |= set(re.findall(r"(?:known|empty)\([^\"()]*f?\"([^\"]+)\"", path.read_text()))
    known = LANGUAGES["en"]
    missing = [
        key for key in asked if "{" not in key and key not in known and not any(k.startswith(f"{key}.") for k in known)
    ]
    begun = [key.partition("{")[0] for key in asked if "{" in key]
    assert not missing
    assert all(any(key.startswith(begin) for key in known) for begin in begun)


def test_every_counter_has_words():
    """What the engine counts is said in words, not as its code."""
    from saga_engine.guards.stats import COUNTERS

    assert [each for each in COUNTERS if f"counter.{each}" not in LANGUAGES["en"]] == []


def test_the_language_is_the_one_that_was_chosen_else_the_browsers():
    """A choice wins over the browser; of what the browser accepts, the first that there is."""
    assert language_of("zh", "en") == "zh"
    assert language_of(None, "fr-FR, zh-CN;q=0.8, en;q=0.5") == "zh"
    assert language_of("xx", "") == "en"
    assert Words("zh")("nav.questions") == LANGUAGES["zh"]["nav.questions"]


# --- colours -------------------------------------------------------------------------------------------------------


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_every_pair_of_colours_has_the_contrast_of_wcag_aa():
    """Text has 4.5 to 1 and the edges of controls 3 to 1, in light and dark; the switch and the system say the same."""
    css = (FOLDER / "assets/console.css").read_text()
    blocks = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root[^{]*\{([^}]*)\}", css)
    ]
    light, system_dark, chosen_dark = [block for block in blocks if "bg" in block]
    assert system_dark == chosen_dark
    assert light.keys() == chosen_dark.keys()
    for theme in (light, chosen_dark):
        surfaces = [theme[name] for name in ("bg", "panel", "raised", "hover", "chosen")]
        pairs = [(theme[ink], surface) for ink in ("text", "quiet", "link") for surface in surfaces]
        pairs += [(theme[name], theme[f"{name}-bg"]) for name in ("ok", "run", "back", "ask", "bad", "doubt", "none")]
        pairs += [(theme["on-accent"], theme["accent"]), (theme["bg"], theme["bad"]), (theme["bad"], theme["raised"])]
        assert [pair for pair in pairs if contrast(*pair) < 4.5] == []
        edges = [(theme[name], theme["raised"]) for name in ("strong-line", "focus")]
        assert [pair for pair in edges if contrast(*pair) < 3] == []


# --- the timeline --------------------------------------------------------------------------------------------------

ERROR = ErrorInfo("boom", "it failed")


def started(at=1000):
    return r.SagaStarted(at=at, saga_id="s", plan={}, digest="", seed="")


def kinds(lane):
    return [(span.kind, span.start, span.stop, span.end) for span in lane]


def test_a_call_in_flight_is_in_doubt_from_the_take_over_on():
    """A process died with a call in flight: nobody knows what became of it until a probe says so."""
    found = timeline(
        [
            started(),
            r.StepIntended(at=1010, step="a"),
            r.SagaResumed(at=5000, owner="w2", epoch=2),
            r.ProbeIntended(at=5010, step="a"),
            r.StepSucceeded(at=5020, step="a", via="probe"),
        ]
    )
    assert kinds(found.rows["a"].forward) == [
        ("call", 1010, 5000, "doubt"),
        ("doubt", 5000, 5010, "doubt"),
        ("probe", 5010, 5020, "ok"),
    ]
    assert [mark.kind for mark in found.marks] == ["resumed"]


def test_attempts_waits_questions_and_undos_are_spans_of_their_lanes():
    """A retry waits between two calls, a question waits for its answer, and an undo stands in its own lane."""
    found = timeline(
        [
            started(),
            r.SagaResumed(at=1001, owner="w", epoch=1),
            r.StepIntended(at=1010, step="a"),
            r.StepRetryScheduled(at=1020, step="a", error=ERROR, delay_ms=500),
            r.StepIntended(at=1520, step="a", attempt=2),
            r.StepSucceeded(at=1530, step="a"),
            r.StepEscalated(at=1540, step="b", question="b:f:1", kind="approval", options=["approve"]),
            r.QuestionResolved(at=9000, question="b:f:1", step="b", decision="deny"),
            r.CompensationStarted(at=9001, reason="blocked"),
            r.StepIntended(at=9002, step="a", direction=COMPENSATE),
            r.StepSucceeded(at=9010, step="a", direction=COMPENSATE),
            r.SagaCompensated(at=9011),
        ]
    )
    assert kinds(found.rows["a"].forward) == [
        ("call", 1010, 1020, "failed"),
        ("retry", 1020, 1520, "settled"),
        ("call", 1520, 1530, "ok"),
    ]
    assert kinds(found.rows["a"].undo) == [("call", 9002, 9010, "ok")]
    assert kinds(found.rows["b"].forward) == [("asks", 1540, 9000, "settled")]
    assert [mark.kind for mark in found.marks] == ["taken", "turned"]
    assert (found.start, found.stop) == (1000, 9011)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**7)), max_size=30))
def test_places_on_the_axis_keep_the_order_of_time(pairs):
    """The axis is monotone from 0 to 1, however idle time is compressed."""
    rows = [Row("a", [Span("call", start, start + long, "ok") for start, long in pairs])]
    axis = axis_of(rows, 0, 2 * 10**9)
    moments = sorted({each for start, long in pairs for each in (start, start + long)} | {0, 2 * 10**9})
    places = [axis.place(moment) for moment in moments]
    assert places == sorted(places)
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
    assert places[-1] == pytest.approx(1)


def test_idle_time_is_compressed_and_calls_keep_their_room():
    """Three days of waiting between two calls of a second leave most of the axis to the calls."""
    day = 86_400_000
    rows = [
        Row(
            "a", [Span("call", 0, 1000, "ok"), Span("asks", 1000, 3 * day), Span("call", 3 * day, 3 * day + 1000, "ok")]
        )
    ]
    axis = axis_of(rows, 0, 3 * day + 1000)
    assert axis.place(1000) > 0.4
    assert [piece.idle for piece in axis.pieces] == [False, True, False]
