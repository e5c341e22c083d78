"""THE FRONT DOOR: the composition root, the only room that wires stores, tools and a runtime together."""

from saga_engine.api.coordinator import Coordinator, PlanSource

__all__ = ["Coordinator", "PlanSource"]
