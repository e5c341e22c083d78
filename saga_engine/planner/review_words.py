"""The sentences of a review: in English, and so that another catalogue says them in its language.

A sentence is a ``Said``: the English text, which knows its key and values. JSON has the text alone (``as_texts``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: The English sentences, and what stands between the parts of those that are made of several.
ENGLISH: Final[Mapping[str, str]] = {
    "fallback": "if {tool} fails: {then}",
    "fallback.cached": "its last result counts, if it is at most {seconds} s old",
    "fallback.queued": "it is tried again every {seconds} s",
    "final.fallback": "{tool}, the fallback, cannot be undone ({kind})",
    "final": "{tool} cannot be undone ({kind})",
    "notice": "{tool} sends a {kind}, which cannot be unsent",
    "notice.to": "{tool} sends a {kind} to {to}, which cannot be unsent",
    "end": "{call} runs whatever happened; never undone",
    "end.fallback": "{fallback}; never undone",
    "approval": "{tool} needs approval (rule '{rule}')",
    "approval.perhaps": "{tool} perhaps needs approval (rule '{rule}')",
    "denied": "{tool} is denied (rule '{rule}')",
    "denied.perhaps": "{tool} perhaps is denied (rule '{rule}')",
    "operator": "an operator",
    "asks": "{whom}: {question} ({how}); {otherwise}",
    "asks.value": "a value of {schema}",
    "asks.text": "a text",
    "answered": "{option}: {follows}",
    "regardless": "these run whatever is answered: {steps}",
    "waits": "for {events}; ends with {end}; {otherwise}",
    "event": "{event} (key {key})",
    "event.saga": "this saga",
    "end.first": "the first of them",
    "end.all": "all of them",
    "end.event": "the event",
    "late": "an event that comes too late is answered by {call}, which is never undone",
    "list.each": "one call for each item of {of}: {tool}",
    "list.known": "{calls} calls, of {of}: {tool}",
    "list.parallel": ", {most} at a time",
    "list.only": ", only if {condition}",
    "condition": "{tool} runs only if {condition}",
    "failure": "{tool} counts as failed if {condition}",
    "continues": "if {tool} fails, the rest goes on all the same",
    "it": "it",
    "computes": "{compute} = {result}",
    "computes.samples": "{compute} = {result}, with sample values",
    "computes.none": "{compute}: no sample ({why})",
    "undo": "{tool} is undone by {undo}",
    "undo.written": "{tool} is undone by {undo} {params}, written by the model",
    "added": "added",
    "removed": "removed",
    "endless": "the saga waits as long as it takes",
    "expired.fails": "after {seconds} s step {step} fails, and everything is undone",
    "expired.continues": "after {seconds} s the saga goes on without it",
    "expired.value": "after {seconds} s {value} counts",
    "follows.fails": "the step fails, and everything is undone",
    "follows.runs": "runs {steps}",
    "follows.skips": "skips {steps}",
    "follows.binding": "as the steps that bind it say",
    "simulated": "{points} failure points: {clean} clean, {asks} ask an operator, {left} leave an effect",
    "simulated.part": "{points} failure points: {clean} clean, {asks} ask an operator, {left} leave an effect; "
    "{left_out} more were left out",
    "not": "not ({condition})",
    "group": "({condition})",
    "exists": "{value} has a value",
    "absent": "{value} has no value",
    "compare.==": "{value} is {to}",
    "compare.!=": "{value} is not {to}",
    "compare.in": "{value} is one of {to}",
    "compare.not-in": "{value} is none of {to}",
    "compare.matches": "{value} is like {to}",
    "joined": "",
    "joined.and": " and ",
    "joined.or": " or ",
    "joined.comma": ", ",
    "joined.then": "; ",
}


class Said(str):
    """A sentence, made of the template of a ``key`` and its values, or of ``parts``, between which the template is."""

    __slots__ = ("key", "parts", "values")

    key: str
    values: Mapping[str, Any]
    parts: tuple[str, ...]

    def within(self, catalogue: Mapping[str, str]) -> str:
        """The sentence as another catalogue has it, and all that stands in it."""
        if self.parts:
            return catalogue[self.key].join(translated(each, catalogue) for each in self.parts)
        return catalogue[self.key].format(
            **{name: translated(each, catalogue) for name, each in self.values.items()},
        )


def said(key: str, /, *, text: str | None = None, **values: Any) -> Said:
    """A sentence with its values; ``text``: its English, where that is not simply the template's."""
    found = Said(ENGLISH[key].format(**values) if text is None else text)
    found.key, found.values, found.parts = key, values, ()
    return found


def joined(key: str, *parts: str) -> str:
    """Several texts as one; a single one as it is."""
    if len(parts) <= 1:
        return parts[0] if parts else ""
    found = Said(ENGLISH[key].join(parts))
    found.key, found.values, found.parts = key, {}, parts
    return found


def translated(text: Any, catalogue: Mapping[str, str]) -> Any:
    """A sentence in the language of a catalogue with the keys of ``ENGLISH``; anything else as it is."""
    return text.within(catalogue) if isinstance(text, Said) else text


def as_texts(facts: Any) -> Any:
    """Facts whose sentences are plain texts, as JSON has them."""
    if isinstance(facts, Mapping):
        return {name: as_texts(each) for name, each in facts.items()}
    if isinstance(facts, list | tuple):
        return [as_texts(each) for each in facts]
    return str(facts) if isinstance(facts, Said) else facts
