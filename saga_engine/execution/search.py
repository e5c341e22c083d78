"""Searches for sagas: from what a user asks for to the store's query, and cursors as texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from saga_engine.core.search_terms import calling, named, tagged
from saga_engine.core.states import SAGA_STATES
from saga_engine.errors import SettingInvalid
from saga_engine.plan.limits import MAX_TAG_CHARS, MAX_TAGS
from saga_engine.plan.values import cut
from saga_engine.ports import Head, Query, SearchPlace, Store

MAX_LIMIT: Final = 1000
_CURSOR: Final = re.compile(r"([0-9]{1,13})-([A-Za-z0-9][A-Za-z0-9._-]{0,127})", re.ASCII)


@dataclass(frozen=True, slots=True)
class SagaPage:
    """Some of the sagas of a search, the most recently created first. ``cursor`` continues it; None: these were all."""

    sagas: Sequence[Head]
    cursor: str | None


def check_tags(tags: Sequence[str]) -> None:
    """Raises ``SettingInvalid`` unless these can be the tags of one saga."""
    if isinstance(tags, str) or len(tags) > MAX_TAGS:
        raise SettingInvalid(f"tags are a list of at most {MAX_TAGS} texts")
    for tag in tags:
        if (
            not isinstance(tag, str)
            or not 1 <= len(tag) <= MAX_TAG_CHARS
            or not tag.isprintable()
            or tag != tag.strip()
        ):
            hint = f"a tag is a printable text of 1 to {MAX_TAG_CHARS} characters, without spaces at its ends"
            raise SettingInvalid(f"{cut(tag, 80)} is no tag", hint=hint)


def query_of(
    *,
    status: str | None = None,
    name: str | None = None,
    tags: Iterable[str] = (),
    tool: str | None = None,
    asks: bool = False,
    since_ms: int = 0,
    limit: int = 100,
) -> Query:
    """A store's query. Raises ``SettingInvalid`` for an unknown status, an unprintable word, or a wrong limit."""
    if status is not None and status not in SAGA_STATES:
        raise SettingInvalid(f"there is no status {cut(status, 80)}", hint=", ".join(SAGA_STATES))
    if not 1 <= limit <= MAX_LIMIT:
        raise SettingInvalid(
            f"a page has 1 to {MAX_LIMIT} sagas, not {limit}", hint="ask for the next page by its cursor"
        )
    terms = list(dict.fromkeys(map(tagged, tags)))
    if len(terms) > 2 * MAX_TAGS:  # those of its plan, and its own
        raise SettingInvalid(f"no saga has more than {2 * MAX_TAGS} tags", hint="search for fewer")
    terms += [named(name)] if name is not None else []
    terms += [calling(tool)] if tool is not None else []
    for term in terms:
        if not term.isprintable():
            raise SettingInvalid(f"no saga is found by {cut(term, 80)}", hint="names, tags and tools are printable")
    return Query(terms, () if status is None else (status,), asks, max(since_ms, 0), limit=limit)


async def searched(store: Store, query: Query, cursor: str | None) -> SagaPage:
    """A page of a search. Raises ``SettingInvalid`` for a cursor that no search gave."""
    heads, place = await store.search(query, None if cursor is None else _place(cursor))
    return SagaPage(heads, None if place is None else f"{place[0]}-{place[1]}")


def _place(cursor: str) -> SearchPlace:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise SettingInvalid(
            f"{cut(cursor, 80)} is no cursor", hint="give the cursor of the page before, as it was printed"
        )
    return int(match[1]), match[2]
