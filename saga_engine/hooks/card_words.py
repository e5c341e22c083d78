"""What a card says in its own words. Goals, params and options are shown as they are."""

from __future__ import annotations

from typing import Final

from saga_engine.hooks.messages import asks, quoted, subject
from saga_engine.language import LANGUAGES, Fragment, catalogue
from saga_engine.language.questions import QUESTIONS, expires
from saga_engine.ports import Question

#: ``fact.…``: the names of a card's lines.
CARDS: Final[Fragment] = {
    "fact.Saga": ("Saga", "Saga"),
    "fact.To": ("To", "问"),
    "fact.Step": ("Step", "步骤"),
    "fact.Goal": ("Goal", "目标"),
    "fact.Call": ("Call", "调用"),
    "fact.Known": ("Known", "已知"),
    "fact.Proposed": ("Proposed", "建议"),
    "fact.Until": ("Until", "截至"),
    "fact.Then": ("Then", "随后"),
    "open": ("Open", "打开"),
    "colon": (": ", "："),
    "reminder": (" (reminder {n})", "（第 {n} 次提醒）"),
    "until": ("{when} ({then} then)", "{when}（届时{then}）"),
}
_WORDS: Final = {each: catalogue(each, CARDS, QUESTIONS) for each in LANGUAGES}


class CardWords:
    """The words of a card in one language."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._words = _WORDS[language]

    def __call__(self, key: str, **values: object) -> str:
        """The words of ``key``, with values in their places."""
        return self._words[key].format(**values)

    def option(self, name: str) -> str | None:
        """The button of an answer of the engine's; None: the plan's own."""
        return self._words[f"answer.{name}"] if name in ("approve", "deny") else None

    def asks(self, question: Question) -> str:
        """What a question asks."""
        return asks(quoted(question.kind, 60), question.question_id, self.language)

    def subject(self, question: Question) -> str:
        """The call that a question is about: ``step 2 (book_hotel)``."""
        return subject(question, self.language)

    def until(self, question: Question, when: str) -> str:
        """A moment, and what happens then."""
        return self("until", when=when, then=expires(question.kind, self.language))
