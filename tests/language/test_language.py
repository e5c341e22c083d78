"""The engine says each thing once, in every language, and by the terms of the glossary."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from saga_engine.core.messages import DECISIONS
from saga_engine.core.questions import OPTIONS
from saga_engine.core.states import SAGA_STATES, STEP_STATES
from saga_engine.hooks.card_words import CARDS
from saga_engine.language import LANGUAGES, catalogue
from saga_engine.language.questions import QUESTIONS, about, asked, expires
from saga_engine.language.states import STATES
from saga_engine.planner.review_words import REVIEW
from saga_engine.server.console.words_pages import PAGES
from saga_engine.server.console.words_sagas import SAGAS

ROOT = Path(__file__).parents[2]
#: Every fragment of the package; a new one is found by its annotation.
FRAGMENTS = {"CARDS": CARDS, "QUESTIONS": QUESTIONS, "STATES": STATES, "REVIEW": REVIEW, "PAGES": PAGES, "SAGAS": SAGAS}
ALL = [(f"{name} {key}", *texts) for name, fragment in FRAGMENTS.items() for key, texts in fragment.items()]
ALL = [each for each in ALL if each[0] != "PAGES plan.placeholder"]  # (JSON)
#: Texts whose values differ: Chinese does not name the kind of a message.
UNEQUAL = {"REVIEW notice", "REVIEW notice.to"}
_HAN = re.compile(r"[\u4e00-\u9fff]")


def values_of(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


# --- gaps ------------------------------------------------------------------------------------------------------------


def test_every_fragment_is_held_by_these_tests() -> None:
    """Whoever adds one finds it here; and no text of the package is Chinese outside of a fragment."""
    found = {
        name
        for path in (ROOT / "saga_engine").rglob("*.py")
        for name in re.findall(r"^(\w+): Final\[Fragment\]", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert found == set(FRAGMENTS)


def test_nothing_is_said_in_one_language_only() -> None:
    """Each text is there in each, with the same values, and is Chinese in Chinese."""
    assert len(ALL) > 500
    for where, english, chinese in ALL:
        assert where in UNEQUAL or values_of(english) == values_of(chinese), where
        assert _HAN.search(english) is None, where
        ours = re.sub(r"\{\w+\}|`[^`]*`|\bSagas?\b|\bJSON\b", "", english)
        assert _HAN.search(chinese) or not re.search(r"[A-Za-z]{2}", ours), where


def test_whatever_the_engine_asks_or_is_has_its_words() -> None:
    """Each kind of question, each answer with what it means, each state."""
    said = QUESTIONS.keys() | STATES.keys()
    wanted = {f"asks.{kind}" for kind in OPTIONS} | {f"answer.{each}" for each in DECISIONS}
    wanted |= {f"answer-means.{each}" for each in DECISIONS}
    wanted |= {f"status.{each}" for each in SAGA_STATES} | {f"step.{each}" for each in STEP_STATES}
    assert wanted - said == set()


def test_a_text_stands_in_one_fragment() -> None:
    """Nobody says it otherwise elsewhere."""
    assert len(catalogue("zh", QUESTIONS, STATES, SAGAS, PAGES)) > 400
    with pytest.raises(ValueError, match="two fragments"):
        catalogue("en", QUESTIONS, {"asks.ask": ("other words", "别的话")})


def test_a_question_in_each_language() -> None:
    """What it asks, what it is about, and what happens without an answer."""
    call = {"number": 1, "of": 3}
    assert [asked("in-doubt", each) for each in LANGUAGES] == ["did the call happen?", "该调用发生了吗？"]
    assert [asked("newer", each) for each in LANGUAGES] == [
        "newer: how should the saga continue?",
        "newer：saga 应如何继续？",
    ]
    assert [about("1", "book", undo=True, call=call, language=each) for each in LANGUAGES] == [
        "call 2 of 3 of the undo of step 1 (book)",
        "步骤 1 的撤销（第 2 个调用，共 3 个）（book）",
    ]
    assert [expires("newer", each) for each in LANGUAGES] == ["denied unless answered before", "未答复则拒绝"]


# --- the glossary ----------------------------------------------------------------------------------------------------

#: Terms by the words of the English text; the Chinese one is the glossary's.
TERMS = {
    "in doubt": r"in doubt",
    "outcome": r"outcome unknown",
    "idempotency key": r"idempotency key",
    "breaker": r"breaker",
    "operator": r"operators?",
    "pivot": r"pivot",
    "irreversible": r"irreversible",
    "probe": r"probe",
    "compensate": r"compensat\w+",
    "template": r"templates?",
    "lease": r"leases?",
    "policy": r"policy",
    "worker": r"workers?",
    "session": r"sessions?",
    "fork": r"fork",
    "token": r"tokens?",
}
#: What Chinese texts and pages say otherwise nowhere, and the term that is meant.
FORBIDDEN = {
    "断路器": "熔断器",
    "操作员": "运维人员",
    "操作者": "运维人员",
    r"人工(?!智能)": "运维人员",
    "幂等密钥": "幂等键",
    "幂等性键": "幂等键",
    "枢轴": "转折点",
    "不可逆": "不可撤销",
}
GLOSSARIES = {
    tag: (ROOT / "docs" / page).read_text() for tag, page in (("en", "glossary.md"), ("zh", "glossary.zh.md"))
}


def translations() -> dict[str, str]:
    """The Chinese terms of the glossary, by the English ones beside them."""
    found: dict[str, str] = {"outcome": "结果未知"}  # (the row explains three outcomes)
    for row in GLOSSARIES["zh"].splitlines():
        cells = row.split("|")
        for each in cells[1].split("、") if row.startswith("| ") else ():
            english, _, chinese = each.strip().partition(" ") if not _HAN.search(each) else _split(each.strip())
            found.setdefault(english, chinese)
    return found


def _split(cell: str) -> tuple[str, str, str]:
    at = _HAN.search(cell)
    assert at is not None
    return cell[: at.start()].strip(), "", cell[at.start() :].strip()


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_the_glossarys_in_both_languages(term: str) -> None:
    """A text that uses the term in English uses its translation in Chinese."""
    wanted = translations()[term]
    about_it = [each for each in ALL if re.search(rf"\b(?:{TERMS[term]})\b", each[1], re.IGNORECASE)]
    assert [each for each in about_it if wanted not in each[2]] == []


def test_in_doubt_and_an_unknown_outcome_are_two_things() -> None:
    """存疑 is what a step is, 结果未知 what a call came to: neither word stands for the other."""
    assert [each for each in ALL if "存疑" in each[2] and "in doubt" not in each[1].lower()] == []
    assert [each for each in ALL if "结果未知" in each[2] and "unknown" not in each[1].lower()] == []
    assert any("存疑" in each[2] for each in ALL)
    assert any("结果未知" in each[2] for each in ALL)


@pytest.mark.parametrize("word", FORBIDDEN)
def test_no_page_has_another_word_for_a_term(word: str) -> None:
    """In the texts of the engine and on the pages in Chinese, those of the reference included."""
    pages = [*(ROOT / "docs").rglob("*.zh.md"), ROOT / "README.zh.md"]
    assert len(pages) > 30
    found = [where for where, _, chinese in ALL if re.search(word, chinese)]
    found += [str(page) for page in pages if re.search(word, page.read_text(encoding="utf-8"))]
    assert found == [], f"the glossary says {FORBIDDEN[word]}"


def test_an_operator_is_called_so_in_both_languages() -> None:
    """Whoever answers the engine's questions; a plan's question may be anybody's."""
    assert [
        each for each in ALL if re.search(r"\b(?:person|people|human)\b", each[1]) and "part.ask" not in each[0]
    ] == []
