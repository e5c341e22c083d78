"""Questions in the log: the default of a coordinator without hooks."""

from __future__ import annotations

import logging
from typing import Final

from saga_engine.hooks.messages import answer_line, quoted, show_line, title
from saga_engine.loggers import logger_of
from saga_engine.ports import Question

LOGGER: Final = logger_of("saga_engine.escalation")
#: The levels by the names that settings use.
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


class LogHook:
    """One line for each question, with the command that answers, to the logger ``saga_engine.escalation``.

    It is logged at ``level``. The log record's ``question`` has all of it. Raises nothing: a handler that fails is the
    business of ``logging``.
    """

    def __init__(self, level: int = logging.WARNING) -> None:
        self.level = level

    def __repr__(self) -> str:
        return f"LogHook({logging.getLevelName(self.level)})"

    async def __call__(self, question: Question) -> None:
        """Log it."""
        answers = ""
        if question.options:
            line = answer_line(question.saga_id, str(question.step_id), question.direction, "ANSWER")
            answers = f" Answer with: {line} (ANSWER: {', '.join(quoted(option, 100) for option in question.options)})"
        if question.sealed:
            answers = f"; what it is about is sealed: {show_line(question.saga_id)}{answers and '.'}{answers}"
        LOGGER.log(
            self.level,
            "%s%s [question %s]",
            title(question),
            answers,
            question.question_id,
            extra={"question": question.to_dict()},
        )
