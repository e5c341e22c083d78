"""One generator of plans: it draws features together, and holds each saga to the laws of all of them at once.

Each feature is a part of the simulation: what it adds to a random plan, to the outside world and to the laws. A seed
decides which features a saga has, from one to three or more, what its plan is, and all that goes wrong, with crashes
anywhere. What every plan may have (fallbacks, steps of models, another way, asking later, amendments, cancels,
deadlines, guards, approvals) is drawn by ``simulation`` itself. A hundred thousand sagas by hand::

    python -m tests.core.generator --sagas 100000 --workers 2
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial

from saga_engine.errors import JournalUnreadable
from tests.core.ask_simulation import AskSimulation
from tests.core.asking_later_simulation import AskLaterSimulation
from tests.core.child_simulation import ChildSimulation
from tests.core.conditional_simulation import ConditionalSimulation
from tests.core.each_simulation import EachSimulation
from tests.core.expected_simulation import ExpectedSimulation
from tests.core.final_simulation import FinalSimulation
from tests.core.image_simulation import ImageSimulation
from tests.core.several_simulation import SeveralSimulation
from tests.core.simulation import Simulation
from tests.core.undo_calls_simulation import UndoCallsSimulation
from tests.core.world import Violation

#: The parts by feature, in the order in which they are asked: what inserts steps comes before what changes them.
FEATURES: dict[str, type[Simulation]] = {
    "finally": FinalSimulation,
    "children": ChildSimulation,
    "waits": SeveralSimulation,
    "asks": AskSimulation,
    "conditions": ConditionalSimulation,
    "lists": EachSimulation,
    "undo calls": UndoCallsSimulation,
    "expected values": ExpectedSimulation,
    "images": ImageSimulation,
    "models away": AskLaterSimulation,
}
_CHUNK = 200


@cache
def kind_of(features: tuple[str, ...]) -> type[Simulation]:
    """The simulation of sagas with these features."""
    return type(" + ".join(features), tuple(FEATURES[name] for name in FEATURES if name in features), {})


def drawn(dice: random.Random) -> tuple[str, ...]:
    """Two or three features, rarely one, and now and then many."""
    count = dice.choice([1, 2, 2, 2, 3, 3, 3, 3, 5, len(FEATURES)])
    return tuple(sorted(dice.sample(list(FEATURES), count)))


def generated(seed: int) -> Simulation:
    """The saga of a seed; ``run`` it."""
    dice = random.Random(seed)
    features = drawn(dice)
    return kind_of(features)(dice, dice.choice([0.0, 0.3, 0.6, 1.0]))


def broken_law(seed: int) -> str | None:
    """The law that the saga of a seed breaks, or None."""
    features = drawn(random.Random(seed))
    try:
        generated(seed).run()
    except (Violation, JournalUnreadable, LookupError, AssertionError) as caught:
        return f"seed {seed} ({', '.join(features)}): {type(caught).__name__}: {str(caught)[:500]}"
    return None


def _chunk(end: int, first: int) -> list[str]:
    return [law for seed in range(first, min(first + _CHUNK, end)) if (law := broken_law(seed))]


def main(argv: Sequence[str]) -> int:
    """Run many sagas; say which break a law."""
    parser = argparse.ArgumentParser(prog="python -m tests.core.generator", description="Run many random sagas.")
    parser.add_argument("--sagas", type=int, default=100_000, help="how many (default: 100000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--workers", type=int, default=1, help="how many processes run them (default: 1)")
    options = parser.parse_args(argv)
    end = options.first + options.sagas
    broken: Counter[str] = Counter()
    with ProcessPoolExecutor(options.workers) as pool:
        for found in pool.map(partial(_chunk, end), range(options.first, end, _CHUNK)):
            for law in found:
                broken[law.partition("(")[2].partition(")")[0]] += 1
                sys.stdout.write(f"{law}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{options.sagas} sagas, {sum(broken.values())} break a law\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
