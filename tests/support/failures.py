"""Which tests failed how often: ``python -m tests.support.failures OUTPUT...``, each argument what one run of CI printed.

A test that fails in one run and passes in the next is broken, whatever made it fail: it stands here with its number of
failures, the runs that had it, and the first line of what each said.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

#: A line of pytest's short summary, with or without the time of a log before it.
_LINE: Final = re.compile(r"\b(?:FAILED|ERROR) (?P<test>tests/\S+?::[^\[\s]+(?:\[.*?\])?)(?: - (?P<said>.*))?$")
_SAID_CHARS: Final = 100


def failures(outputs: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """By test: what it said in each run in which it failed. ``outputs``: what the runs printed, by name."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for name, text in outputs.items():
        for line in text.splitlines():
            told = _LINE.search(line.rstrip())
            if told is not None:
                found[told["test"]].setdefault(name, (told["said"] or "")[:_SAID_CHARS])
    return dict(found)


def table(outputs: Mapping[str, str]) -> str:
    """The counts, the most frequent first."""
    found = failures(outputs)
    lines = [f"{len(outputs)} runs, {len(found)} tests that failed in one of them"]
    for test, runs in sorted(found.items(), key=lambda each: (-len(each[1]), each[0])):
        lines.append(f"{len(runs):4d}  {test}")
        lines += [f"      {name}: {said}" for name, said in runs.items()]
    return "\n".join(lines) + "\n"


def main(names: Iterable[str]) -> None:
    """Print the table of these files."""
    sys.stdout.write(table({name: Path(name).read_text(encoding="utf-8", errors="replace") for name in names}))


if __name__ == "__main__":
    main(sys.argv[1:])
