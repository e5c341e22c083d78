"""Chooses the relevant tools for a goal: a model that sees hundreds chooses badly and costs much.

Texts are compared by Okapi BM25 (Robertson and Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond*,
2009) with the usual k1 = 1.2 and b = 0.75. Words are lower-cased and stripped of their English endings; text without
spaces between words (Chinese, Japanese, Korean) is cut into pairs of characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import isfinite, log
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec

Score = Callable[[str, "ToolSpec"], float]

_K1: Final = 1.2
_B: Final = 0.75
#: The weight of a word, by the field it stands in.
_NAME, _TAG, _USE_WHEN, _TEXT = 3, 3, 2, 1
#: The words of a goal that count: it is a sentence, and a page pasted into it must not cost more.
_MAX_GOAL_CHARS: Final = 10_000

_CJK: Final = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003134f"
_RUN: Final = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_STOP: Final = frozenset(
    (
        *("a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "have", "i", "if", "in", "into", "is"),
        *("it", "its", "me", "my", "of", "on", "or", "our", "that", "the", "then", "this", "to", "use", "used", "was"),
        *("we", "when", "which", "will", "with", "you", "your"),
    )
)
#: Endings with their replacements and the least length of the rest; of plurals first, then of verbs.
_PLURALS: Final = (("ies", "y", 2), ("sses", "ss", 2), ("s", "", 3))
_VERBS: Final = (("ing", "", 3), ("ed", "", 3), ("e", "", 4))


def words(text: str) -> list[str]:
    """The words of a text in their compared form: ``book_flights`` and ``Booking a flight`` are both book, flight."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    found: list[str] = []
    for run in _RUN.findall(_CAMEL.sub(" ", text)):
        if run[0] >= "\u3040" and re.match(f"[{_CJK}]", run):
            found += [run[at : at + 2] for at in range(len(run) - 1)] or [run]
            continue
        word = run.lower()
        if word not in _STOP:
            found.append(_stem(word))
    return found


def _stem(word: str) -> str:
    """A word without its English endings. Crude, but the same for goals and tools, as the comparison needs."""
    if not word.isascii():
        return word
    for endings in (() if word.endswith("ss") else _PLURALS, _VERBS):
        for ending, rest, least in endings:
            if word.endswith(ending) and len(word) - len(ending) >= least:
                word = word.removesuffix(ending) + rest
                break
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeious"
    return word[:-1] if doubled else word  # cancelled, cancel; roll, rolling


def select_tools(
    goal: str,
    catalog: ToolCatalog,
    *,
    limit: int = 20,
    tags: Iterable[str] = (),
    score: Score | None = None,
) -> list[ToolSpec]:
    """At most ``limit`` tools for a goal, the best first, each followed by its undo and its probe.

    Tools are ordered by the number of their ``tags`` that match. Among equals the text decides: name, tags,
    ``use_when``, description and parameters against the goal; then the order of registration, so the same goal always
    gives the same list. ``score(goal, tool)`` replaces the comparison of texts (embeddings, a model of your own): the
    larger the better.

    Undo and probe do not count against ``limit``, since a tool is of no use to a saga without them: the list has at
    most four times as many tools (undo, probe, and the undo's probe). If fewer than ``limit`` tools match, others fill
    the list: different words do not prove that a tool is useless. A catalog within the limit is returned whole.

    Raises ``ValueError`` for a negative limit and for a score that is not finite.
    """
    if limit < 0:
        raise ValueError(f"limit must not be negative, but is {limit}")
    specs = [spec for name in catalog.names() if (spec := catalog.spec(name)) is not None]
    wanted = frozenset(tag.casefold() for tag in ((tags,) if isinstance(tags, str) else tags))
    scores = _bm25(goal, specs) if score is None else [_finite(score(goal, spec), spec) for spec in specs]
    ranks = [
        (-len(wanted.intersection(map(str.casefold, spec.tags))), -scores[at], at) for at, spec in enumerate(specs)
    ]
    chosen: dict[str, ToolSpec] = {}
    counted = 0
    for _, _, at in sorted(ranks):
        if counted == limit:
            break
        spec = specs[at]
        if spec.name in chosen:
            continue
        counted += 1
        chosen[spec.name] = spec
        for other in _companions(spec, catalog):
            chosen.setdefault(other.name, other)
    return list(chosen.values())


def _companions(spec: ToolSpec, catalog: ToolCatalog) -> Iterable[ToolSpec]:
    """The undo and the probes that a saga needs along with a tool."""
    undo = None if spec.undo is None else catalog.spec(spec.undo)
    names = [spec.undo, spec.probe, None if undo is None else undo.probe]
    return [other for name in names if name is not None and (other := catalog.spec(name)) is not None]


def _finite(value: float, spec: ToolSpec) -> float:
    if not isfinite(value):
        raise ValueError(f"the score of tool {spec.name!r} is {value}, which has no place in an order")
    return value


# --- BM25 ----------------------------------------------------------------------------------------------------------


def _bm25(goal: str, specs: Sequence[ToolSpec]) -> list[float]:
    """The score of each tool for the goal; 0 if they share no word."""
    query = set(words(goal[:_MAX_GOAL_CHARS]))
    bags = [_bag(spec) for spec in specs]
    lengths = [sum(bag.values()) for bag in bags]
    mean = sum(lengths) / len(lengths) if any(lengths) else 1.0
    # In a fixed order: sums of floats depend on it.
    weights = {word: _idf(sum(word in bag for bag in bags), len(bags)) for word in sorted(query)}
    found = []
    for bag, length in zip(bags, lengths, strict=True):
        damp = _K1 * (1 - _B + _B * length / mean)
        found.append(
            sum(
                weight * count * (_K1 + 1) / (count + damp)
                for word, weight in weights.items()
                if (count := bag.get(word, 0))
            )
        )
    return found


def _idf(having: int, total: int) -> float:
    return log(1 + (total - having + 0.5) / (having + 0.5))


def _bag(spec: ToolSpec) -> Counter[str]:
    bag: Counter[str] = Counter()
    for text, weight in _texts(spec):
        for word in words(text):
            bag[word] += weight
    return bag


def _texts(spec: ToolSpec) -> Iterable[tuple[str, int]]:
    yield spec.name, _NAME
    yield " ".join(spec.tags), _TAG
    yield spec.use_when, _USE_WHEN
    yield spec.description, _TEXT
    yield spec.returns, _TEXT
    properties = spec.input_schema.get("properties")
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        yield name, _TEXT
        described = schema.get("description") if isinstance(schema, dict) else None
        if isinstance(described, str):
            yield described, _TEXT
