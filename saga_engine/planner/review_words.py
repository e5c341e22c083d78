"""The sentences of a review, in each language.

A sentence is a ``Said``: the English text, which knows its key and values. JSON has the text alone (``as_texts``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from saga_engine.language import Fragment, catalogue

#: The sentences, and what stands between the parts of those that are made of several.
REVIEW: Final[Fragment] = {
    "fallback": ("if {tool} fails: {then}", "如果 {tool} 失败：{then}"),
    "fallback.cached": (
        "its last result counts, if it is at most {seconds} s old",
        "采用它最近一次的结果，至多 {seconds} 秒之前",
    ),
    "fallback.queued": ("it is tried again every {seconds} s", "每 {seconds} 秒再试一次"),
    "final.fallback": ("{tool}, the fallback, cannot be undone ({kind})", "后备方案 {tool} 无法撤销（{kind}）"),
    "final": ("{tool} cannot be undone ({kind})", "{tool} 无法撤销（{kind}）"),
    "notice": ("{tool} sends a {kind}, which cannot be unsent", "{tool} 发出后无法收回"),
    "notice.to": ("{tool} sends a {kind} to {to}, which cannot be unsent", "{tool} 发给 {to}，发出后无法收回"),
    "end": ("{call} runs whatever happened; never undone", "无论发生什么都执行 {call}；不会撤销"),
    "end.fallback": ("{fallback}; never undone", "{fallback}；不会撤销"),
    "approval": ("{tool} needs approval (rule '{rule}')", "{tool} 需要审批（规则 {rule}）"),
    "approval.perhaps": ("{tool} perhaps needs approval (rule '{rule}')", "{tool} 可能需要审批（规则 {rule}）"),
    "denied": ("{tool} is denied (rule '{rule}')", "{tool} 会被拒绝（规则 {rule}）"),
    "denied.perhaps": ("{tool} perhaps is denied (rule '{rule}')", "{tool} 可能被拒绝（规则 {rule}）"),
    "operator": ("an operator", "运维人员"),
    "asks": ("{whom}: {question} ({how}); {otherwise}", "{whom}：{question}（{how}）；{otherwise}"),
    "asks.value": ("a value of {schema}", "符合 {schema} 的值"),
    "asks.text": ("a text", "文本"),
    "answered": ("{option}: {follows}", "{option}：{follows}"),
    "regardless": ("these run whatever is answered: {steps}", "无论如何答复都会执行：{steps}"),
    "waits": ("for {events}; ends with {end}; {otherwise}", "等待 {events}；{end}即结束；{otherwise}"),
    "event": ("{event} (key {key})", "{event}（键 {key}）"),
    "event.saga": ("this saga", "本 saga"),
    "end.first": ("the first of them", "其中第一个到来"),
    "end.all": ("all of them", "全部到来"),
    "end.event": ("the event", "该事件到来"),
    "late": (
        "an event that comes too late is answered by {call}, which is never undone",
        "事件来得太晚时执行 {call}，不会撤销",
    ),
    "list.each": ("one call for each item of {of}: {tool}", "对 {of} 的每一项调用一次 {tool}"),
    "list.known": ("{calls} calls, of {of}: {tool}", "{calls} 次调用，对应 {of}：{tool}"),
    "list.parallel": (", {most} at a time", "，同时 {most} 次"),
    "list.only": (", only if {condition}", "，仅当 {condition}"),
    "condition": ("{tool} runs only if {condition}", "仅当 {condition} 时执行 {tool}"),
    "failure": ("{tool} counts as failed if {condition}", "若 {condition}，{tool} 算作失败"),
    "continues": ("if {tool} fails, the rest goes on all the same", "即使 {tool} 失败，其余照常继续"),
    "it": ("it", "该步骤"),
    "computes": ("{compute} = {result}", "{compute} = {result}"),
    "computes.samples": ("{compute} = {result}, with sample values", "{compute} = {result}（用示例值）"),
    "computes.none": ("{compute}: no sample ({why})", "{compute}：没有示例（{why}）"),
    "undo": ("{tool} is undone by {undo}", "{tool} 由 {undo} 撤销"),
    "undo.written": (
        "{tool} is undone by {undo} {params}, written by the model",
        "{tool} 由 {undo} {params} 撤销，由模型编写",
    ),
    "added": ("added", "新增"),
    "removed": ("removed", "移除"),
    "endless": ("the saga waits as long as it takes", "saga 一直等待"),
    "expired.fails": (
        "after {seconds} s step {step} fails, and everything is undone",
        "{seconds} 秒之后步骤 {step} 失败，全部撤销",
    ),
    "expired.continues": ("after {seconds} s the saga goes on without it", "{seconds} 秒之后 saga 不等它而继续"),
    "expired.value": ("after {seconds} s {value} counts", "{seconds} 秒之后采用 {value}"),
    "follows.fails": ("the step fails, and everything is undone", "该步骤失败，全部撤销"),
    "follows.runs": ("runs {steps}", "执行 {steps}"),
    "follows.skips": ("skips {steps}", "跳过 {steps}"),
    "follows.binding": ("as the steps that bind it say", "由绑定它的步骤决定"),
    "simulated": (
        "{points} failure points: {clean} clean, {asks} ask an operator, {left} leave an effect",
        "{points} 个失败点：{clean} 个干净，{asks} 个询问运维人员，{left} 个遗留效果",
    ),
    "simulated.part": (
        (
            "{points} failure points: {clean} clean, {asks} ask an operator, {left} leave an effect; "
            "{left_out} more were left out"
        ),
        "{points} 个失败点：{clean} 个干净，{asks} 个询问运维人员，{left} 个遗留效果；另有 {left_out} 个略去",
    ),
    "not": ("not ({condition})", "并非（{condition}）"),
    "group": ("({condition})", "（{condition}）"),
    "exists": ("{value} has a value", "{value} 有值"),
    "absent": ("{value} has no value", "{value} 没有值"),
    "compare.==": ("{value} is {to}", "{value} 是 {to}"),
    "compare.!=": ("{value} is not {to}", "{value} 不是 {to}"),
    "compare.in": ("{value} is one of {to}", "{value} 是 {to} 之一"),
    "compare.not-in": ("{value} is none of {to}", "{value} 不是 {to} 中的任何一个"),
    "compare.matches": ("{value} is like {to}", "{value} 符合 {to}"),
    "joined": ("", ""),
    "joined.and": (" and ", " 且 "),
    "joined.or": (" or ", " 或 "),
    "joined.comma": (", ", "、"),
    "joined.then": ("; ", "；"),
}
#: The English of each key.
ENGLISH: Final = catalogue("en", REVIEW)


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
