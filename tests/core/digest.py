"""The digest of the journals of many random sagas: ``python -m tests.core.digest --seeds 20000``.

It is the witness of a change that must change nothing: as long as the core makes the same records, byte for byte, the
digest stays. Save it before the change, and compare after it::

    python -m tests.core.digest --seeds 20000 --save build/before.json
    python -m tests.core.digest --seeds 20000 --against build/before.json

The second command names the sagas whose journals differ, and ends with 1 if there are any. The seeds are dealt to the
kinds of simulation in turn. A digest depends on nothing but the code: not on the process, its hash seed or their number.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.core.generator import generated
from tests.core.hunts import HUNTS
from tests.core.simulation import Simulation


def of_kind(kind: type[Simulation], seed: int) -> Simulation:
    """The saga of a seed, in one kind of simulation."""
    dice = random.Random(seed)
    return kind(dice, dice.choice([0.3, 0.6, 1.0]))


KINDS: dict[str, Callable[[int], Simulation]] = {
    **{kind.__name__.removesuffix("Simulation") or "Plain": partial(of_kind, kind) for kind in HUNTS},
    "Together": generated,
}
_CHUNK = 100


def journal(name: str, seed: int) -> Sequence[bytes]:
    """The records of one random saga, as the store would have them."""
    simulation = KINDS[name](seed)
    simulation.run()
    return simulation.journal.data


def digest_of(name: str, seed: int) -> str:
    return hashlib.sha256(b"\n".join(journal(name, seed))).hexdigest()


def _chunk(seeds: int, first: int) -> list[tuple[str, str]]:
    names = list(KINDS)
    mine = range(first, min(first + _CHUNK, seeds))
    return [(names[seed % len(names)], digest_of(names[seed % len(names)], seed)) for seed in mine]


def digests(seeds: int, workers: int = 1) -> Iterator[tuple[str, str]]:
    """The kind of each saga and the digest of its journal, in the order of the seeds."""
    firsts = range(0, seeds, _CHUNK)
    if workers == 1:
        for first in firsts:
            yield from _chunk(seeds, first)
        return
    with ProcessPoolExecutor(workers) as pool:
        for chunk in pool.map(partial(_chunk, seeds), firsts):
            yield from chunk


def summed(found: Sequence[tuple[str, str]]) -> dict[str, str]:
    """One digest for each kind, and one of all."""
    sums = {name: hashlib.sha256() for name in [*KINDS, "all"]}
    for name, digest in found:
        sums[name].update(digest.encode())
        sums["all"].update(digest.encode())
    return {name: each.hexdigest() for name, each in sums.items()}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main(argv: Sequence[str]) -> int:
    """Print the digests; compare them."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.core.digest", description="Digest the journals of random sagas."
    )
    parser.add_argument("--seeds", type=int, default=20_000, help="how many sagas (default: 20000)")
    parser.add_argument("--workers", type=int, default=1, help="how many processes make them (default: 1)")
    parser.add_argument("--save", type=Path, help="write the digest of each saga to this file")
    parser.add_argument("--against", type=Path, help="compare with the digests in this file")
    options = parser.parse_args(argv)
    found = list(digests(options.seeds, options.workers))
    for name, digest in summed(found).items():
        count = sum(name in (kind, "all") for kind, _ in found)
        _say(f"{name:<12} {count:>6} sagas  {digest}")
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(json.dumps(found))
    if options.against:
        return compare(found, [(name, digest) for name, digest in json.loads(options.against.read_text())])
    return 0


def compare(found: Sequence[tuple[str, str]], before: Sequence[tuple[str, str]]) -> int:
    """Say which journals differ; 1: some do."""
    if len(found) != len(before):
        _say(f"{len(before)} sagas before, {len(found)} now: give the same --seeds")
        return 1
    other = [(seed, now[0]) for seed, (now, old) in enumerate(zip(found, before, strict=True)) if now != old]
    for seed, name in other[:10]:
        _say(f"the journal of seed {seed} ({name}) differs")
    _say(f"{len(other)} of {len(found)} journals differ")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
