"""Which simulation catches which broken engines."""

from __future__ import annotations

from typing import Any

from tests.core.ahead_mutants import AHEAD_MUTANTS
from tests.core.ahead_simulation import AheadSimulation
from tests.core.ask_simulation import AskSimulation
from tests.core.asking_later_simulation import AskLaterSimulation
from tests.core.child_mutants import CHILD_MUTANTS
from tests.core.child_simulation import ChildSimulation
from tests.core.conditional_mutants import CONDITIONAL_MUTANTS
from tests.core.conditional_simulation import ConditionalSimulation
from tests.core.each_mutants import EACH_MUTANTS
from tests.core.each_simulation import EachSimulation
from tests.core.engine_mutants import (
    ASK_MUTANTS,
    AWAY_MUTANTS,
    FINAL_MUTANTS,
    IMAGE_MUTANTS,
    LATER_MUTANTS,
    MUTANTS,
    SESSION_MUTANTS,
    WAITING_MUTANTS,
)
from tests.core.expected_mutants import EXPECTED_MUTANTS
from tests.core.expected_simulation import ExpectedSimulation
from tests.core.final_simulation import FinalSimulation
from tests.core.image_simulation import ImageSimulation
from tests.core.lying_mutants import LYING_MUTANTS
from tests.core.lying_simulation import LyingImages
from tests.core.session_simulation import SessionSimulation
from tests.core.several_mutants import SEVERAL_MUTANTS
from tests.core.several_simulation import SeveralSimulation
from tests.core.simulation import Simulation
from tests.core.undo_calls_mutants import UNDO_CALLS_MUTANTS
from tests.core.undo_calls_simulation import UndoCallsSimulation
from tests.core.undo_mutants import UNDO_MUTANTS
from tests.core.undo_simulation import UndoSimulation
from tests.core.waiting_simulation import WaitingSimulation

#: Which simulation catches which mutants.
HUNTS: dict[type[Simulation], dict[str, Any]] = {
    Simulation: MUTANTS | LATER_MUTANTS,
    SessionSimulation: SESSION_MUTANTS,
    AheadSimulation: AHEAD_MUTANTS,
    AskSimulation: ASK_MUTANTS,
    AskLaterSimulation: AWAY_MUTANTS,
    FinalSimulation: FINAL_MUTANTS,
    WaitingSimulation: WAITING_MUTANTS,
    SeveralSimulation: SEVERAL_MUTANTS,
    ConditionalSimulation: CONDITIONAL_MUTANTS,
    EachSimulation: EACH_MUTANTS,
    UndoSimulation: UNDO_MUTANTS,
    ImageSimulation: IMAGE_MUTANTS,
    ChildSimulation: CHILD_MUTANTS,
    UndoCallsSimulation: UNDO_CALLS_MUTANTS,
    LyingImages: LYING_MUTANTS,
    ExpectedSimulation: EXPECTED_MUTANTS,
}
