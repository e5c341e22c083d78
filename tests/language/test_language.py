"""The engine says each thing once, in every language, and by the terms of the glossary."""

from __future__ import annotations

import ast
import inspect
import re
import string
from collections.abc import Callable
from pathlib import Path

import pytest

from saga_engine import errors
from saga_engine.cli.words_lists import LISTS
from saga_engine.cli.words_runs import RUNS
from saga_engine.cli.words_shown import SHOWN
from saga_engine.core.messages import DECISIONS
from saga_engine.core.states import SAGA_STATES, STEP_STATES
from saga_engine.errors import SagaError, SagaNotFound
from saga_engine.hooks.card_words import CARDS
from saga_engine.hooks.config import KINDS
from saga_engine.hooks.messages import LINES
from saga_engine.language import LANGUAGES, catalogue
from saga_engine.language.durations import DURATIONS
from saga_engine.language.errors import ERRORS, said, translated
from saga_engine.language.questions import NOT_TAKEN, QUESTIONS, about, asked, expires
from saga_engine.language.refusals import REFUSALS
from saga_engine.language.states import STATES
from saga_engine.plan.words import Unfit, word
from saga_engine.planner.review_words import REVIEW
from saga_engine.server.console.words import Words
from saga_engine.server.console.words_pages import PAGES
from saga_engine.server.console.words_sagas import SAGAS

ROOT = Path(__file__).parents[2]
#: Every fragment of the package; a new one is found by its annotation.
FRAGMENTS = {
    "CARDS": CARDS,
    "QUESTIONS": QUESTIONS,
    "STATES": STATES,
    "ERRORS": ERRORS,
    "LINES": LINES,
    "REFUSALS": REFUSALS,
    "REVIEW": REVIEW,
    "PAGES": PAGES,
    "SAGAS": SAGAS,
    "DURATIONS": DURATIONS,
    "SHOWN": SHOWN,
    "RUNS": RUNS,
    "LISTS": LISTS,
    "NOT_TAKEN": NOT_TAKEN,
}
ALL = [(f"{name} {key}", *texts) for name, fragment in FRAGMENTS.items() for key, texts in fragment.items()]
ALL = [each for each in ALL if each[0] != "PAGES plan.placeholder"]  # (JSON)
#: Texts whose values differ: Chinese does not name the kind of a message, and has a state's name in words beside it.
UNEQUAL = {"REVIEW notice", "REVIEW notice.to", "SHOWN status.both"}
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
        ours = re.sub(r"\{\w+\}|`[^`]*`|\b(?:[Ss]agas?|SAGAS?|JSON)\b", "", english)
        assert _HAN.search(chinese) or not re.search(r"[A-Za-z]{2}", ours), where


def test_whatever_the_engine_asks_or_is_has_its_words() -> None:
    """Each kind of question, each answer with what it means, each state."""
    said = QUESTIONS.keys() | STATES.keys()
    wanted = {f"asks.{kind}" for kind in KINDS} | {f"answer.{each}" for each in DECISIONS}
    wanted |= {f"answer-means.{each}" for each in DECISIONS}
    wanted |= {f"status.{each}" for each in SAGA_STATES} | {f"step.{each}" for each in STEP_STATES}
    assert wanted - said == set()


def test_a_text_stands_in_one_fragment() -> None:
    """Nobody says it otherwise elsewhere."""
    assert len(catalogue("zh", QUESTIONS, STATES, SAGAS, PAGES)) > 400
    with pytest.raises(ValueError, match="two fragments"):
        catalogue("en", QUESTIONS, {"asks.ask": ("other words", "别的话")})


#: Texts of one or two words that mean several things, or stand in several places of a sentence.
AMBIGUOUS = {
    "next": "the next page; the next time",
    "none": "of a list; of a number",
    "remains": "what stands now; what will stand",
    "resume": "a saga; a schedule",
    "reused": "what was reused; what would be",
    "undone": "what was undone; what will be",
}


def test_what_is_said_alike_in_english_is_said_alike_in_chinese() -> None:
    """However it is written: as a title, within a sentence, or at its beginning."""
    found: dict[str, set[str]] = {}
    for _, english, chinese in ALL:
        found.setdefault(english.strip(" .:,").casefold(), set()).add(chinese.strip(" 。：，、").casefold())
    assert {english for english, texts in found.items() if len(texts) > 1} == set(AMBIGUOUS)


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


# --- errors ----------------------------------------------------------------------------------------------------------

#: Where the engine makes errors. (What a tool, a model or a server said is theirs.)
ROOMS = ("core", "execution", "ext", "guards", "policy", "runtime", "tools")


@pytest.mark.parametrize("key", [*ERRORS, *NOT_TAKEN])
def test_an_error_is_known_again_and_said_in_chinese(key: str) -> None:
    """With all of its values; by its code, and by its form alone."""
    english, chinese = {**ERRORS, **NOT_TAKEN}[key]
    values = {name: f"<{name} of 它>" for name in values_of(english)}
    told = said(key, **values)
    assert told == english.format(**values)
    assert translated(key.partition(".")[0], told, "en") == told
    assert translated(key.partition(".")[0], told, "zh") == chinese.format(**values)
    assert _HAN.search(translated("", told, "zh").replace("它", ""))


def test_several_errors_are_told_together() -> None:
    """Each is said in Chinese, if it is the engine's own."""
    wrote = said("drift.wrote-runs", saga="y", step="2", at="9:00", status="RUNNING")
    told = f"{said('drift.again', tool='look')}; {wrote}; the hotel is full"
    first, second, third = translated("drift", told, "zh").split("；")
    assert (first[:4], second, third) == (
        "look",
        "saga y（步骤 2）于 9:00 写过同一资源，其状态为 RUNNING",
        "the hotel is full",
    )


def test_what_others_say_stays_as_they_said_it() -> None:
    """Texts of tools; the engine's own text under another code; a hostile one that is long and almost fits."""
    assert translated("full", "the hotel is full", "zh") == "the hotel is full"
    assert translated("other", said("undo_failed"), "zh") == said("undo_failed")
    start, _, _end = ERRORS["changed_meanwhile"][0].partition("{tool}")
    for hostile in (start, "the value that " * 60_000, start + " it was " * 100_000):
        assert translated("changed_meanwhile", hostile, "zh") == hostile


def texts_elsewhere(texts_of: Callable[[ast.AST], list[ast.expr]]) -> list[str]:
    """Texts of errors that stand beside them: a literal, or one with values, there, above or given to a helper."""
    found = []
    for path in sorted(each for room in ROOMS for each in (ROOT / "saga_engine" / room).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        helpers = {each.name for each in functions if any(_names(text) & _params(each) for text in texts_of(each))}
        for function in functions:
            texts = _assigned([*tree.body, *ast.walk(function)])
            given = [
                *texts_of(function),
                *(each for call in _calls(function) if _called(call) in helpers for each in call.args),
            ]
            own = [each for each in given if _is_text(each) or (isinstance(each, ast.Name) and each.id in texts)]
            found += [f"{path.relative_to(ROOT)}:{each.lineno}" for each in own]
    return sorted(set(found))


def _assigned(within: list[ast.stmt | ast.AST]) -> set[str]:
    """The names that are given a text there."""
    named = [(each.targets, each.value) for each in within if isinstance(each, ast.Assign)]
    named += [([each.target], each.value) for each in within if isinstance(each, ast.AnnAssign) and each.value]
    return {
        target.id for targets, value in named for target in targets if isinstance(target, ast.Name) and _is_text(value)
    }


def _calls(within: ast.AST) -> list[ast.Call]:
    return [each for each in ast.walk(within) if isinstance(each, ast.Call)]


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _texts_of(within: ast.AST) -> list[ast.expr]:
    """The messages of the errors that are made there."""
    made = [each for each in _calls(within) if _called(each) == "ErrorInfo"]
    named = [each.value for call in made for each in call.keywords if each.arg == "message"]
    return [*(text for call in made for text in call.args[1:2]), *named]


def _hints_of(within: ast.AST) -> list[ast.expr]:
    """What the errors that are made there suggest."""
    made = [each for each in _calls(within) if _called(each) == "ErrorInfo"]
    named = [each.value for call in made for each in call.keywords if each.arg == "suggestion"]
    return [*(text for call in made for text in call.args[2:3]), *named]


def _raised_in(within: ast.AST) -> list[ast.expr]:
    """What a step's word says that cannot be carried out."""
    return [each.args[0] for each in _calls(within) if _called(each) in ("NotComputable", "Unfit") and each.args]


def _names(text: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(text) if isinstance(each, ast.Name)}


def _params(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {each.arg for each in function.args.args}


def _is_text(node: ast.expr) -> bool:
    """Whether it is a text with words, or is made of one without ``said``."""
    if isinstance(node, ast.Subscript):
        return _is_text(node.value)
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        return name in ("bounded", "cut", "str") and any(map(_is_text, node.args))
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) or _is_text(node.orelse)
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(each, ast.Constant) and re.search(r"[a-z]{3} [a-z]", each.value) for each in node.values)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value


@pytest.mark.parametrize("texts_of", [_texts_of, _hints_of])
def test_no_error_is_said_in_english_only(texts_of: Callable[[ast.AST], list[ast.expr]]) -> None:
    """Who makes an error of the engine writes its text, and what it suggests, in both languages."""
    assert texts_elsewhere(texts_of) == []


def test_what_a_word_of_the_package_cannot_carry_out_is_said_in_both_languages() -> None:
    """Its step fails with that text."""
    paths = [*(ROOT / "saga_engine/ext").rglob("*.py"), ROOT / "saga_engine/plan/dates.py"]
    raised = [(path, each) for path in paths for each in _raised_in(ast.parse(path.read_text(encoding="utf-8")))]
    assert len(raised) > 5
    assert [f"{path.name}:{each.lineno}" for path, each in raised if _is_text(each)] == []
    for body in ("1 day", -1, {"until": "2026-12-01"}, {"at": 1}, "-P1D", 1e12):
        with pytest.raises(Unfit) as refused:
            word("sleep").check(body)
        assert _HAN.search(translated("sleep_invalid", str(refused.value), "zh")), body


def test_a_reason_within_an_error_is_said_in_chinese_too() -> None:
    """If it is the engine's own."""
    told = said("result_not_json", why=said("result_not_json.unread", why="a pipe broke"))
    assert translated("result_not_json", told, "zh") == "调用已返回，但其结果无法记录：无法读取结果：a pipe broke"
    assert translated("saga-exists", said("saga_exists", saga="x"), "zh") == "saga x 已存在，且不是本 saga 的子 saga"


def test_each_error_has_its_meaning_and_it_is_that_of_the_class_and_of_the_pages() -> None:
    """A page in Chinese says it above the message; the reference says it in both languages with the same words."""
    kinds = {
        each.code: each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, SagaError)
    }
    pages = [(ROOT / "docs/reference" / name).read_text(encoding="utf-8") for name in ("errors.md", "errors.zh.md")]
    assert REFUSALS.keys() == kinds.keys()
    for code, texts in REFUSALS.items():
        meaning = re.sub(r"\s+", " ", inspect.getdoc(kinds[code]).split("\n\n")[0]).replace("``", "`")  # type: ignore[union-attr]
        assert texts[0] == meaning, code
        for page, text in zip(pages, texts, strict=True):
            assert f" | {text} | " in page, code
    page = Words("zh").refused(SagaNotFound("no saga x1"))
    assert page == f"{REFUSALS['saga-not-found'][1]} no saga x1"
    assert Words("en").refused(SagaNotFound("no saga x1")) == "no saga x1"


# --- durations -------------------------------------------------------------------------------------------------------


def test_durations_are_in_the_language_of_the_page() -> None:
    """At most two units."""
    spans = (12, 2500, 83_000, 5_000_000, 90_000_000_0)
    assert [Words("en").duration(each) for each in spans] == ["12 ms", "2.5 s", "1 min 23 s", "1 h 23 min", "10 d 10 h"]
    assert [Words("zh").duration(each) for each in spans] == [
        "12 毫秒",
        "2.5 秒",
        "1 分 23 秒",
        "1 小时 23 分",
        "10 天 10 小时",
    ]


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
    "schedule": r"schedules?",
    "stop": r"(?:a|the|no|An?) stop|stops",
    "question": r"questions?",
    "owner": r"owner",
    "fallback": r"fallback",
    "deferred": r"deferred",
    "plan": r"plan",
    "release": r"released",
    "search": r"this search",
    "planner": r"planners?",
    "agent": r"agents?",
    "journal": r"journal",
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
    words = re.compile(rf"\b(?:{TERMS[term]})\b", re.IGNORECASE)
    about_it = [each for each in ALL if words.search(re.sub(r"`[^`]*`|\{\w+\}|\[\w+\]", "", each[1]))]
    assert about_it
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
