"""The fields of a table of ``saga.toml`` that declares tools, and the options that all such tools share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

from saga_engine.plan.tool_spec import BreakerPolicy, RetryPolicy
from saga_engine.settings import TableReader

#: A schema with one of these may name its params outside of its properties.
COMPOSED: Final = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "unevaluatedProperties"}
)


class ToolTable:
    """A table that declares a tool: beside its own fields it has those in ``SHARED``."""

    __slots__ = ()


#: Options of every tool that may stand in such a table; ``before_absent`` is the option ``absent``, ``verify_undo``
#: the option ``verify``: that of an HTTP table is about certificates.
SHARED: Final = (
    *("description", "use_when", "not_when", "returns", "tags", "sensitive", "redact"),
    *("timeout_s", "resource", "hold", "hold_max_s", "max_concurrency", "rate", "dedupe_ttl_s", "last_good_s", "cost"),
    *("compensates", "semantic", "version", "retry", "breaker"),
    *(
        "undo_params",
        "undo_each",
        "undo_then",
        "before",
        "after",
        "before_absent",
        "undo_absent",
        "sole_writer",
        "expect",
    ),
    *("undo_check", "verify_undo", "verify_within_s"),
)


class Fields(TableReader):
    """The fields of the table ``[KIND.NAME]`` in the file ``source``."""

    def __init__(
        self, name: str, table: Any, source: str, kind: str = "http", *, of: type | None = None, **context: Any
    ) -> None:
        super().__init__(f"[{kind}.{name}] in {source}", table, of=of, **(context or {"tool": name}))
        self.name = name
        if of is not None and issubclass(of, ToolTable):
            self.declare(dict.fromkeys(SHARED))

    def flag(self, field: str) -> bool:
        """A boolean."""
        value = self.any(field, self.default(field) or False)
        if not isinstance(value, bool):
            self.refuse(field, f"must be true or false, not {value!r}")
        return value

    def number(self, field: str, *, at_most: float) -> float:
        """A positive number."""
        value = self.any(field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
            self.refuse(field, f"must be a positive number, not {value!r}")
        if value > at_most:
            self.refuse(field, f"must be at most {at_most:g}, not {value!r}")
        return value

    def one_of(self, field: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of a few words."""
        value = self.text(field, default)
        if value not in choices:
            self.refuse(field, f"cannot be {value!r}", f"one of: {', '.join(choices)}")
        return value

    def table(self, field: str) -> dict[str, Any] | None:
        """A table; ``None`` if it is not given."""
        value = self.any(field)
        if value is not None and not isinstance(value, dict):
            self.refuse(field, 'must be a table, such as { name = "value" }')
        return value

    def statuses(self, field: str) -> frozenset[int] | None:
        """A list of HTTP statuses; ``None`` if it is not given."""
        value = self.any(field)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(code) is int and 200 <= code <= 599 for code in value):
            self.refuse(field, f"must be a list of HTTP statuses from 200 to 599, not {value!r}")
        return frozenset(value)


def shared_options(it: Fields, hidden: Sequence[str] = ()) -> dict[str, Any]:
    """The options that declared tools share with all others; the tool itself checks them.

    ``hidden``: params that are sensitive already.
    """
    options: dict[str, Any] = {"description": it.text("description")}
    for field in ("use_when", "not_when", "returns"):
        options[field] = it.text(field)
    tags = it.any("tags", [])
    if not isinstance(tags, str) and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        it.refuse("tags", "must be a list of texts")
    options["tags"] = tags
    sensitive = it.any("sensitive", [])
    if not isinstance(sensitive, list) or not all(isinstance(name, str) for name in sensitive):
        it.refuse("sensitive", "must be a list of params", 'sensitive = ["card"]')
    options["sensitive"] = [*dict.fromkeys([*sensitive, *hidden])]
    redact = it.any("redact", [])
    if not isinstance(redact, list) or not all(isinstance(rule, str) for rule in redact):
        it.refuse("redact", "must be a list of paths", 'redact = ["card.number", "items.*.ssn"]')
    options["redact"] = redact
    for field in (
        *(
            "timeout_s",
            "resource",
            "hold",
            "hold_max_s",
            "max_concurrency",
            "rate",
            "dedupe_ttl_s",
            "last_good_s",
            "cost",
        ),
        *("compensates", "semantic", "version"),
    ):
        value = it.any(field)
        if value is not None:
            options[field] = value
    retry = it.table("retry")
    if retry is not None:
        options["retry"] = _policy(it, "retry", RetryPolicy, retry)
    breaker = it.any("breaker", default=False)
    if isinstance(breaker, dict):
        breaker = _policy(it, "breaker", BreakerPolicy, breaker)
    elif not isinstance(breaker, bool):
        it.refuse("breaker", "must be true, false or a table", "breaker = { failures = 3, open_s = 30 }")
    return {**options, "breaker": breaker}


def image_options(it: Fields) -> dict[str, Any]:
    """The options of a tool's undo, and of one that changes a value which another tool reads.

    ``before_absent`` is the option ``absent``; a read says by its own table what it finds absent, and answers null.
    """
    before, undo_absent, absent = it.text("before"), it.text("undo_absent"), it.table("before_absent")
    if absent is not None and not before:
        it.refuse("before_absent", "has no meaning without before", 'before = "the tool that reads the value"')
    if before and undo_absent and absent is None:
        absent = {"null": True}
    then = it.any("undo_then", [])
    if not isinstance(then, list) or not all(isinstance(call, dict) for call in then):
        it.refuse(
            "undo_then", "must be a list of tables", 'undo_then = [{ tool = "cancel", params = { id = "$output.id" } }]'
        )
    return {
        "undo_params": it.table("undo_params"),
        "undo_each": it.text("undo_each") or None,
        "undo_then": then,
        "before": before or None,
        "after": it.one_of("after", ("read", "output"), "read"),
        "absent": absent,
        "undo_absent": undo_absent or None,
        "sole_writer": it.flag("sole_writer"),
        "expect": it.any("expect"),
        "undo_check": it.table("undo_check"),
        "verify": it.any("verify_undo", default=True),
        "verify_within_s": it.any("verify_within_s", default=0.0),
    }


def _policy(it: Fields, field: str, kind: Any, table: Mapping[str, Any]) -> Any:
    for name in table:
        if name not in kind.__dataclass_fields__:
            it.refuse(field, f"has {name!r}, which means nothing", f"fields: {', '.join(kind.__dataclass_fields__)}")
    return kind(**table)
