"""The alert rules and the dashboard that are shipped name what is measured, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, Metric

from saga_engine.ports import Load
from saga_engine.telemetry import Metrics
from saga_engine.telemetry.gauges import gauges_of
from tests.telemetry.prometheus_server import promtool

DOCS = Path(__file__).parents[2] / "docs" / "monitoring"
RULES = yaml.safe_load((DOCS / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
BOARD = json.loads((DOCS / "dashboard.json").read_text(encoding="utf-8"))
LOAD = Load(queued=1, timed=1, oldest_ms=1, now_ms=2, owners={}, reports={}, statuses={"RUNNING": 1})
#: What a label of these families may say, beside names of tools.
KNOWN_LABELS = {"tool", "direction", "outcome", "status", "kind", "via", "by", "le"}


def names(registry: CollectorRegistry) -> Iterator[str]:
    for family in registry.collect():
        yield from of_family(family)


def of_family(family: Metric) -> Iterator[str]:
    if family.type == "counter":
        yield f"{family.name}_total"
    elif family.type == "histogram":
        yield from (f"{family.name}_{part}" for part in ("bucket", "sum", "count"))
    else:
        yield family.name


def expressions() -> dict[str, str]:
    found = {rule["alert"]: rule["expr"] for rule in RULES}
    for panel in BOARD["panels"]:
        found |= {f"{panel['title']} {at['refId']}": at["expr"] for at in panel["targets"]}
    return found


def test_each_metric_that_a_rule_or_a_panel_names_exists() -> None:
    """A rule about a metric that was renamed would be silent for ever."""
    tools: dict[str, Any] = {"book": {"breaker": {"state": "open"}}}
    known = {*names(Metrics().registry), *names(gauges_of(LOAD, tools))}
    for where, expr in expressions().items():
        named = set(re.findall(r"\bsaga_\w+", expr))
        assert named, where
        assert named <= known, (where, named - known)
        labels = set(re.findall(r"(\w+)=", expr))
        grouped = {
            each.strip() for group in re.findall(r"(?:by|without) \(([^)]*)\)", expr) for each in group.split(",")
        }
        assert labels | grouped <= KNOWN_LABELS, where


def test_each_metric_is_on_the_dashboard() -> None:
    """Whoever adds a metric decides where an operator sees it."""
    shown = " ".join(expressions().values())
    tools: dict[str, Any] = {"book": {"breaker": {"state": "open"}}}
    for registry in (Metrics().registry, gauges_of(LOAD, tools)):
        for family in registry.collect():
            assert re.search(rf"\b{family.name}(_total|_bucket)?\b", shown), family.name


def test_panels_have_places_of_their_own() -> None:
    """No panel covers another one, and each has an id of its own."""
    cells = [
        (x, y)
        for panel in BOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


@pytest.mark.parametrize("verb", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]])
def test_prometheus_accepts_the_rules(verb: list[str]) -> None:
    """Prometheus' own tool reads the rules, and they alert when they should and only then."""
    assert "SUCCESS" in promtool(*verb, folder=DOCS)
