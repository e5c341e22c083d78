"""The reference pages that are written from the code: ``docs/reference``. ``make docs-reference`` writes them anew."""

from __future__ import annotations

from pathlib import Path

from website.reference import api, cli, errors, plan, records, settings

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def pages() -> dict[str, str]:
    """Every page as the code says now, by the name of its file."""
    return {
        "api.md": api.page(),
        "cli.md": cli.page(),
        "plan-schema.md": plan.page(),
        "plan.schema.json": plan.schema(),
        "settings.md": settings.page(),
        "errors.md": errors.page(),
        "records.md": records.page(),
    }
