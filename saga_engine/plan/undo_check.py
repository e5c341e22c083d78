"""What must be seen after an undo: the declaration of ``undo_check``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from saga_engine.plan.absence import Absence, read_absence

_HINT: Final = (
    'write undo_check={"tool": "get_order", "params": {"id": "$output.id"}, "shows": {"fields": {"status": "void"}}}'
)


class UndoCheck(NamedTuple):
    """After the undo the read ``tool`` is called with ``params``, and must answer as ``shows`` says.

    ``params``: None: each parameter of the read gets the field of its name in the call's output, or the call's param.
    """

    tool: str
    params: Mapping[str, Any] | None
    shows: Absence

    def to_dict(self) -> dict[str, Any]:
        """The declaration as JSON."""
        params = {} if self.params is None else {"params": dict(self.params)}
        return {"tool": self.tool, **params, "shows": self.shows.to_dict()}


def read_undo_check(given: Any) -> UndoCheck:
    """The declaration from its JSON form. Raises ``ValueError`` with the problem and a hint."""
    if not isinstance(given, Mapping) or set(given) - {"tool", "params", "shows"} or not given.get("tool"):
        raise ValueError(f"undo_check={given!r} has no meaning", _HINT)
    tool, params = given["tool"], given.get("params")
    name = tool if isinstance(tool, str) else getattr(tool, "name", "") or getattr(tool, "__name__", "")
    if not name or (params is not None and not isinstance(params, Mapping)):
        raise ValueError(f"undo_check={given!r} names no read with its params", _HINT)
    try:
        shows = read_absence(given.get("shows"))
    except ValueError as error:
        raise ValueError(str(error.args[0]).replace("absent", "undo_check.shows", 1), _HINT) from None
    return UndoCheck(str(name), params, shows)
