"""Claims on the effects of a saga: of its forks, and of the saga that undoes it, one owns each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from saga_engine.plan.values import digest
from saga_engine.ports import GuardStore

_CLAIMS: Final = "saga.fork"
#: As long as a finished saga can be viewed, and longer. Also how long the id of the new owner is reserved.
CLAIM_MS: Final = 366 * 24 * 3600 * 1000


class Claims:
    """The claims on the steps of the saga ``of``."""

    def __init__(self, guards: GuardStore, of: str) -> None:
        self._guards = guards
        self._of = of

    async def owners(self) -> Mapping[str, str]:
        """By step: the saga that claimed it."""
        found: Mapping[str, str] = await self._guards.tally(self._tally())
        return found

    async def take(self, steps: Iterable[str], saga_id: str, identity: str) -> tuple[str, str] | None:
        """Claim step by step, each after those it depends on, up to one that another saga has: that one, and its owner.

        The owner of a step therefore has everything that it depends on, and two forks do not each claim a half that
        neither can use. ``identity`` is part of the owner's name: another plan under the same id is another owner.
        """
        for step in steps:
            owner = f"{saga_id}:{step}:f:{identity}"
            claim = await self._guards.claim(_CLAIMS, digest([self._of, step]), owner, CLAIM_MS)
            if claim.code not in ("new", "ours"):
                other = claim.owner.partition(":")[0]
                if other != saga_id:
                    await self._note(step, other)
                return step, other
            await self._note(step, saga_id)
        return None

    async def _note(self, step: str, owner: str) -> None:
        await self._guards.tally_set(self._tally(), step, owner, CLAIM_MS)

    def _tally(self) -> str:
        return f"fork\n{self._of}"
