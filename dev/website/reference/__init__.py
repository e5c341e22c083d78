"""The reference pages that are written from the code: ``docs/reference``. ``make docs-reference`` writes them anew."""

from __future__ import annotations

from pathlib import Path

from dev.website.reference import api, chinese, cli, errors, http, metrics, plan, proofs, records, settings

FOLDER = Path(__file__).parents[3] / "docs" / "reference"


def pages() -> dict[str, str]:
    """Every page as the code and the catalogues say now, by the name of its file."""
    found = english()
    twins = {stem: chinese.twin(stem, found[f"{stem}.md"], FOLDER / f"{stem}.md") for stem in chinese.stems()}
    return found | {f"{stem}.zh.md": text for stem, text in twins.items()}


def english() -> dict[str, str]:
    """The English pages, and the schema."""
    return {
        "api.md": api.page(),
        "cli.md": cli.page(),
        "plan-schema.md": plan.page(),
        "plan.schema.json": plan.schema(),
        "settings.md": settings.page(),
        "errors.md": errors.page(),
        "records.md": records.page(),
        "proofs.md": proofs.page(),
        "http.md": http.page(),
        "metrics.md": metrics.page(),
    }
