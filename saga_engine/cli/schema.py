"""``saga schema``."""

from __future__ import annotations

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, JsonOption


def schema(
    *,
    as_json: JsonOption = False,  # noqa: ARG001 - it is JSON in any case
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Print the JSON Schema of a plan.

    Example:
      saga schema > plan.schema.json
    """
    from saga_engine.cli.output import document
    from saga_engine.plan.schema import plan_schema

    document(plan_schema())
    return exit_codes.COMPLETED
