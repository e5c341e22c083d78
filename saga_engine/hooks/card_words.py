"""What a card says in its own words, in English and in Chinese. Goals, params and options are shown as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from saga_engine.core.outlooks import THEN
from saga_engine.core.session_records import FORKED
from saga_engine.hooks.messages import asks, expiry_words, quoted, subject
from saga_engine.ports import Question


class CardWords(NamedTuple):
    """The words of one language. ``facts``: the names of a card's lines; ``options``: of its buttons.

    ``asks``: what a question asks; ``subject``: the call that it is about; ``until``: a moment, and what happens
    then. ``then``: what follows from an answer (``core.outlooks``).
    """

    facts: Mapping[str, str]
    options: Mapping[str, str]
    open: str
    colon: str
    reminder: str
    asks: Callable[[Question], str]
    subject: Callable[[Question], str]
    until: Callable[[Question, str], str]
    then: Mapping[str, str] = THEN


_ENGLISH: Final = CardWords(
    facts={name: name for name in ("Saga", "To", "Step", "Goal", "Call", "Known", "Proposed", "Until", "Then")},
    options={"approve": "Approve", "deny": "Deny"},
    open="Open",
    colon=": ",
    reminder=" (reminder {n})",
    asks=lambda question: asks(question.kind, question.question_id),
    subject=subject,
    until=lambda question, when: f"{when} ({expiry_words(question.kind).lower()} then)",
)

#: The question about a step, by its kind.
CHINESE_ASKS: Final[Mapping[str, str]] = {
    "in-doubt": "该调用发生了吗？",
    "step-failed": "该调用没有完成，saga 应如何继续？",
    "tool-changed": "工具不再接受计划中的调用，saga 应如何继续？",
    "undo-failed": "撤销永久失败，由谁来撤销？",
    "undo-in-doubt": "撤销发生了吗？",
    "undo-blocked": "策略拒绝了撤销，由谁来撤销？",
    "undo-missing": "其效果仍在且没有撤销方法，由谁来撤销？",
    "drift": "该值与已知的步骤所留之值不同，是否覆盖？",
    "undo-unverified": "撤销声称已完成，但步骤的结果仍在，由谁来撤销？",
    "approval": "是否允许进行该调用？",
    "compensation": "模型建议了补偿步骤，是否允许执行？",
    "session-failed": "该会话的智能体失败了，全部撤销还是保留会话？",
    "session-kept": "智能体失败，会话将保留到它再次运行。",
    "ask": "计划提出的问题",
    "deferred": "等待工具恢复可用，无需答复。",
    "finally": "收尾步骤没有完成或结果未知，saga 的结局不变。",
}
_CHINESE_THEN: Final[Mapping[str, str]] = {
    "session-failed": "届时未答复则全部撤销",
    "session-kept": "届时智能体未再运行则全部撤销",
    "ask": "届时未答复则 saga 继续",
}


def _chinese_asks(question: Question) -> str:
    if question.question_id == FORKED:
        return "该会话是一个分叉，将保留到其智能体再次运行。"
    return CHINESE_ASKS.get(question.kind, "saga 应如何继续？")


def _chinese_subject(question: Question) -> str:
    """The subject: ``步骤 2（book_hotel）``."""
    about = f"步骤 {quoted(str(question.step_id), 64)}"
    if question.direction == "compensate":
        about += "的撤销"
    if question.undo_call is not None:
        about += f"（第 {question.undo_call['number'] + 1} 个调用，共 {question.undo_call['of']} 个）"
    return f"{about}（{quoted(question.tool or question.step_name, 64)}）"


def _chinese_until(question: Question, when: str) -> str:
    return f"{when}（{_CHINESE_THEN.get(question.kind, '届时未答复则拒绝')}）"


_CHINESE: Final = CardWords(
    facts={
        "Saga": "Saga",
        "To": "问",
        "Step": "步骤",
        "Goal": "目标",
        "Call": "调用",
        "Known": "已知",
        "Proposed": "建议",
        "Until": "截至",
        "Then": "随后",
    },
    options={"approve": "批准", "deny": "拒绝"},
    open="打开",
    colon="：",
    reminder="（第 {n} 次提醒）",
    asks=_chinese_asks,
    subject=_chinese_subject,
    until=_chinese_until,
    then={
        "calls": "调用 {tool}（步骤 {step}）",
        "undo": "执行撤销 {tool}（步骤 {step}）",
        "twice": "它不识别键：若先前已发生，就会发生两次",
        "looks": "再看一次该值，若仍是步骤所留之值就撤销",
        "model": "先请模型另寻他法；没有则：",
        "undoes": "撤销 {steps}",
        "settles": "先查明 {steps}",
        "remains": "效果保留：{steps}",
        "begins": "继续 {steps}",
        "asks": "就步骤 {step} 提问",
        "nothing": "不再调用任何工具",
    },
)

#: By the tag of the language.
LANGUAGES: Final[Mapping[str, CardWords]] = {"en": _ENGLISH, "zh": _CHINESE}
