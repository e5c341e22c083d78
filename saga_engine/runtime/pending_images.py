"""The before-images of one saga that have been read, or are to be read, and are not yet a part of an intent."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from saga_engine.core import records as r
from saga_engine.core.effects import AnyEffect, NotDone, ReadBefore, Unknown
from saga_engine.core.images import Image, wants_image
from saga_engine.core.interpret import interpret_read
from saga_engine.core.state import State


class PendingImages:
    """By step: what was read, or None for what is to be read.

    Nothing of it is durable, and nothing is lost with it: a read has no effect, and is made again.
    """

    __slots__ = ("_state", "waiting")

    def __init__(self, state: State) -> None:
        self._state = state
        #: (Looked at for each append: no call is made for that.)
        self.waiting: dict[int, Image | NotDone | None] = {}

    def completed(self, found: Sequence[r.AnyRecord], now_ms: int) -> list[r.AnyRecord]:
        """What is decided, with what the calls are about to change; intents that still need to know that are left out.

        They are decided again once it has been read.
        """
        out: list[r.AnyRecord] = []
        for record in found:
            if type(record) is not r.StepIntended or not wants_image(self._state, record):
                out.append(record)
                continue
            index = self._state.plan.by_key[record.step]
            image = self.waiting.pop(index, None)
            if image is None:
                self.waiting[index] = None
            else:
                out.append(interpret_read(self._state, record, image, now_ms, random.random()))
        return out

    def reads(self, under_way: Iterable[AnyEffect], ended: Iterable[tuple[AnyEffect, Any]]) -> list[AnyEffect]:
        """The reads that are to be started now. What was read before and was not used is too old, and forgotten.

        A read in `ended` has its result, which was not looked at yet (it ended while the store wrote). It is not made
        again: the second result would stay for a later attempt, before which somebody may have changed the value.
        """
        known = chain(under_way, (effect for effect, _ in ended))
        running = {effect.step for effect in known if type(effect) is ReadBefore}
        wanted = [index for index, image in self.waiting.items() if image is None and index not in running]
        self.waiting = {}
        return [ReadBefore(index) for index in wanted]

    def learn(self, effect: ReadBefore, result: Any) -> None:
        """A read has ended; a defect of the engine counts as one that failed."""
        self.waiting[effect.step] = NotDone(result.error, retryable=False) if type(result) is Unknown else result
