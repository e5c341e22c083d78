"""Warnings about a plan: what is legal and probably a mistake. A warning never keeps a plan from running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.plan.compiler import checked_draft
from saga_engine.plan.guesses import undeclared
from saga_engine.plan.holding import held_over
from saga_engine.plan.lookalikes import lookalikes
from saga_engine.plan.lost_updates import lost_updates
from saga_engine.plan.undo_rules import undo_findings, undo_steps

if TYPE_CHECKING:
    from saga_engine.errors import Problem
    from saga_engine.plan.model import Plan
    from saga_engine.plan.tool_spec import ToolCatalog


def warnings_of(plan: Plan, catalog: ToolCatalog | None) -> list[Problem]:
    """All warnings about a plan; without a catalog those about its text."""
    found = lookalikes(plan)
    if catalog is None:
        return found
    found += [*undeclared(plan, catalog), *undo_findings(plan, catalog)]
    made = checked_draft(plan, catalog)
    return [*found, *undo_steps(made), *lost_updates(made), *held_over(made)]
