"""THE FRONT DOOR: the composition root, the only room that wires stores, tools and a runtime together."""

from saga_engine.api.coordinator import Coordinator
from saga_engine.api.engine import Engine, PlanSource

__all__ = ["Coordinator", "Engine", "PlanSource"]
