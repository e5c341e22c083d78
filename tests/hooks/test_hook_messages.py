"""What people read, whatever a model or the network put into it."""

from __future__ import annotations

import logging
import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.core.questions import OPTIONS
from saga_engine.hooks.log import LogHook
from saga_engine.hooks.messages import answer_line, asks, body, title
from saga_engine.language.errors import said
from saga_engine.language.questions import QUESTIONS
from saga_engine.ports import Question
from tests.hooks.questions import a_question

TEXTS = st.text(max_size=2000) | st.sampled_from(
    ["@everyone", "<!channel>", "a\nAnswer with one of:\n    saga resolve x 1 accept", "\x1b[2J", "\u202e", "<@U123>"]
)


def test_every_kind_of_question_has_its_words() -> None:
    """A kind that the engine can ask about is never shown as a bare code."""
    assert {f"asks.{kind}" for kind in OPTIONS} <= set(QUESTIONS)
    assert asks("a new kind\n") == "a new kind\\n: how should the saga continue?"


def test_a_question_in_plain_words() -> None:
    """What is asked about which step, what is known, since when, and a line for each legal answer."""
    assert title(a_question()) == "saga trip-42, step hotel (book_hotel): did the call happen?"
    assert body(a_question()).splitlines() == [
        "Step hotel (book_hotel) of saga trip-42: did the call happen?",
        "Goal: two nights in Graz",
        "Asked: 2027-01-15T08:00:00+00:00",
        "What is known: read_timeout: no answer",
        "Answer with one of:",
        "    saga resolve trip-42 hotel happened --output '{…}'",
        "    saga resolve trip-42 hotel not-happened",
        "    saga resolve trip-42 hotel retry",
        "    saga resolve trip-42 hotel accept",
        "More: saga show trip-42",
        "Question hotel:f:1",
    ]


def test_an_approval_shows_the_exact_call_and_its_end() -> None:
    """Who approves sees what is approved, and until when."""
    question = a_question(
        kind="approval",
        options=OPTIONS["approval"],
        error=None,
        params={"amount": 10, "to": "Ada"},
        expires_ms=1_800_000_600_000,
        direction="compensate",
        round=2,
    )
    assert title(question) == "Reminder 2: saga trip-42, the undo of step hotel (book_hotel): may this call be made?"
    lines = body(question).splitlines()
    assert 'The exact call: book_hotel {"amount": 10, "to": "Ada"}' in lines
    assert "Denied unless answered before 2027-01-15T08:10:00+00:00" in lines
    assert "    saga resolve trip-42 hotel approve" in lines


def test_a_compensation_shows_the_exact_steps() -> None:
    """Who approves what a model proposes sees each call."""
    steps = [{"step_id": "m1", "tool": "send_voucher", "params": {"to": "$input.guest", "note": "a\n@all"}}]
    lines = body(a_question(kind="compensation", options=OPTIONS["compensation"], steps=steps)).splitlines()
    at = lines.index("The proposed steps:")
    assert lines[at + 1] == '  - send_voucher {"to": "$input.guest", "note": "a\\n@\u200ball"}'


def test_a_message_in_chinese() -> None:
    """All words of its own; the error if it is the engine's; command lines and the texts of others stay."""
    error = {"error_code": "answer_lost", "message": said("answer_lost"), "suggestion": "look there"}
    question = a_question(error=error, round=2, params={"room": 7}, called_ms=5, expires_ms=9, steps=[{"tool": "pay"}])
    told = "\n".join((title(question, "zh"), body(question, {"retry": "https://x"}, "https://y", language="zh")))
    assert "不知道该调用是否发生" in told
    ours = re.sub(r"\s+saga resolve [^\n]*|saga show \S+|look there", "", told)
    for theirs in (question.goal, question.tool, question.saga_id, question.question_id, *question.options):
        ours = ours.replace(theirs, "")
    english = r"answer|question|goal|call|known|step |until|link|proposed|reminder|exact|page|\bof\b"
    assert re.findall(english, ours.replace("answer_lost", ""), re.IGNORECASE) == []
    assert "第 2 次提醒" in told


def test_a_notice_asks_nothing() -> None:
    """No answers are offered where there are none."""
    text = body(a_question(kind="deferred", options=()))
    assert "Answer" not in text
    assert "no answer is needed" in text


@given(goal=TEXTS, message=TEXTS, value=TEXTS, suggestion=TEXTS)
def test_no_text_from_elsewhere_becomes_a_line_of_ours_or_calls_anybody(goal, message, value, suggestion) -> None:
    """The lines that are there without the hostile texts are the lines that are there with them; nothing is mentioned."""
    tame = lines_of("x", "x", "x", "x")
    wild = lines_of(goal or "x", message, value, suggestion or "x")
    assert [line.split(":")[0] for line in wild] == [line.split(":")[0] for line in tame]
    assert [line for line in wild if line.startswith("    ")] == [line for line in tame if line.startswith("    ")]
    text = "\n".join(wild)
    assert all(char == "\u200b" or char.isprintable() for line in wild for char in line)
    assert "@e" not in text
    assert "<!" not in text
    assert "<@" not in text
    assert len(text) < 8000


def lines_of(goal: str, message: str, value: str, suggestion: str) -> list[str]:
    error = {"error_code": "e", "message": message, "suggestion": suggestion}
    return body(a_question(goal=goal, error=error, params={"v": value})).split("\n")


@given(
    step=st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z"),
    option=st.sampled_from(sorted({o for v in OPTIONS.values() for o in v})),
)
def test_a_line_to_type_is_one_command_whatever_the_step_is_called(step, option) -> None:
    """A shell splits the line into exactly these words, and a step called --help is no option."""
    words = shlex.split(answer_line("trip-42", step, "forward", option, ["--tools", "t.py"]))
    assert words[:3] == ["saga", "resolve", "trip-42"]
    assert words[-2:] == [step, option] if step.startswith("-") else words[3:5] == [step, option]
    assert ("--" in words[:-2]) == step.startswith("-")
    assert ("--output" in words) == (option == "happened")


def test_a_saga_id_cannot_add_a_command() -> None:
    """Even if an id had characters that it must not have, the shell would see one word."""
    words = shlex.split(answer_line("a; rm -rf ~", "1", "forward", "accept"))
    assert words == ["saga", "resolve", "a; rm -rf ~", "1", "accept"]


async def test_the_log_has_one_line_and_the_whole_question(caplog) -> None:
    """Logged at the level that was asked for; a goal with line breaks forges no second entry."""
    caplog.set_level(logging.INFO)
    question: Question = a_question(goal="a\nb")
    await LogHook(logging.ERROR)(question)
    (record,) = [each for each in caplog.records if each.name == "saga_engine.escalation"]
    assert record.levelno == logging.ERROR
    assert "did the call happen?" in record.getMessage()
    assert "\n" not in record.getMessage()
    assert record.question == question.to_dict()


@pytest.mark.parametrize("at_ms", [10**20, -(10**20)])
def test_a_time_that_no_calendar_has_is_still_shown(at_ms: int) -> None:
    """A damaged journal must not keep people from being told."""
    assert f"{at_ms} ms" in body(a_question(asked_ms=at_ms))
