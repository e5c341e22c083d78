"""The preview of a cancel: what would be undone of a saga as it stands now, and what would remain.

It names the undos that would be called. Whether each of them succeeds, nobody knows before. A call that is in flight or
in doubt is settled first, and undone if it happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from saga_engine.core.masking import mask_of, named
from saga_engine.core.messages import check_cancel
from saga_engine.core.outlooks import Standing, standing
from saga_engine.core.state import State
from saga_engine.errors import CancelRefused


@dataclass(slots=True)
class CancelPreview:
    """What a cancel would do now. ``refused``: why it is not possible; empty: it is.

    ``undoes``: steps whose undo would be called, the last that happened first; undos that do not depend on each other
    may have another order. ``settles``: steps whose call is in flight or in doubt, or whose child saga has not
    ended: that is settled first, by a cancel of the child, and undone if it happened. ``remains``: effects without
    an undo, and those that an operator accepted; ``asks``: of those, the steps about which a model or an operator
    would be asked. ``elsewhere``: effects that other sagas own. ``never``: steps that would not begin any more.
    """

    refused: str = ""
    undoes: list[dict[str, Any]] = field(default_factory=list)
    settles: list[dict[str, Any]] = field(default_factory=list)
    remains: list[dict[str, Any]] = field(default_factory=list)
    elsewhere: list[dict[str, Any]] = field(default_factory=list)
    never: list[dict[str, Any]] = field(default_factory=list)


def preview_cancel(state: State) -> CancelPreview:
    """The preview for a state as the journal has it; nothing changes."""
    found = CancelPreview()
    try:
        check_cancel(state)
    except CancelRefused as error:
        found.refused = error.message
    stands, mask = standing(state), mask_of(state)
    if mask is not None:
        stands = Standing(*([named(mask, each) for each in of] for of in stands))
    found.undoes, found.settles, found.remains = stands.undoes, stands.settles, stands.remains
    found.elsewhere, found.never = stands.elsewhere, stands.never
    return found
