"""Actions on many sagas: resume, cancel, resolve. A job is durable; whichever server is there carries it on.

Each action may be repeated, so a server that was killed in the middle of a batch loses nothing and doubles nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from saga_engine.errors import DecisionRefused, JobNotFound, SagaError, SettingInvalid
from saga_engine.execution.result import shown
from saga_engine.loggers import logger_of
from saga_engine.operations.params import MAX_SAGAS
from saga_engine.plan.values import cut
from saga_engine.ports import Document
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.server import acts
from saga_engine.server.identity import Identity
from saga_engine.server.keys import hashed

if TYPE_CHECKING:
    from saga_engine.batches.batch import Batch
    from saga_engine.server.desk import Desk

_log = logger_of("saga_engine.server")

#: So many sagas are worked on between two writes of the report, and so many of them at a time.
_BATCH: Final = 100
_AT_ONCE: Final = 10
#: A job whose server has written nothing for so long is carried on by another one.
_CLAIM_MS: Final = 30_000
_LOOK_S: Final = 5.0
_PAGE: Final = 1000
_LISTED: Final = 1000
_KEEP_MS: Final = 7 * 24 * 3600 * 1000

Action = Literal["resume", "cancel", "resolve"]


class Job(msgspec.Struct):
    """A job and its report. ``counts``: how many sagas came out how: ``done``, or an error's code.

    ``successes`` are the first thousand sagas that were done, ``failures`` the first thousand that were not. ``twice``:
    its sender knows that a call in doubt whose tool honours no key may happen twice if it is repeated.
    """

    id: str
    action: Action
    by: str
    tenant: str
    sagas: list[str]
    decision: str = ""
    kind: str = ""
    note: str = ""
    twice: bool = False
    worked: int = 0
    counts: dict[str, int] = {}
    successes: list[str] = []
    failures: list[dict[str, str]] = []
    created_ms: int = 0
    ended_ms: int = 0

    def shown(self) -> dict[str, Any]:
        """The report."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        del body["tenant"]
        body["sagas"] = len(self.sagas)
        return body | {"status": "ended" if self.ended_ms else "running"}


class Jobs:
    """The jobs of a store's servers."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._documents = desk.coordinator.store.documents()
        self._new = asyncio.Event()

    async def create(self, identity: Identity, body: Mapping[str, Any], key: str = "") -> Job:
        """Journal a job for the sagas that are named, or that a search finds now; of one ``key`` once.

        Raises ``SettingInvalid``.
        """
        job_id = f"j{hashlib.sha256(key.encode()).hexdigest()[:15] if key else secrets.token_hex(8)[:15]}"
        if key and (there := await self._documents.read("job", job_id)) is not None:
            return _decoded(there)
        named, where = body.get("sagas"), body.get("where")
        if (named is None) == (where is None):
            raise SettingInvalid("a job has either sagas or where", hint="give one of the two")
        sagas = list(dict.fromkeys(named)) if named is not None else await self._found(identity, where or {})
        if (body["action"] == "resolve") != bool(body.get("decision")):
            raise SettingInvalid("a decision belongs to 'resolve', and 'resolve' needs one")
        if body.get("twice") and body.get("decision") != "retry":
            raise SettingInvalid("'twice' belongs to the decision 'retry'")
        job = Job(
            id=job_id,
            action=body["action"],
            by=identity.who,
            tenant=identity.tenant,
            sagas=sagas,
            decision=body.get("decision", ""),
            kind=body.get("kind", ""),
            note=body.get("note", ""),
            twice=body.get("twice", False),
            created_ms=_now_ms(),
        )
        if await self._documents.write("job", Document(job.id, 0, msgspec.json.encode(job)), due_ms=1) is None:
            return await self.get(identity, job_id)  # the same request was faster
        self._new.set()
        return job

    async def preview(self, identity: Identity, body: Mapping[str, Any]) -> Batch:
        """What a job would do to each saga, of a search to the first thousand; nothing changes.

        Raises ``SettingInvalid``.
        """
        return await self._desk.engine_of(identity).select(
            body["action"],
            saga_ids=body.get("sagas", ()),
            **body.get("where", {}),
            kind=body.get("kind") or None,
            decision=body.get("decision", ""),
            twice=body.get("twice", False),
        )

    async def _found(self, identity: Identity, where: Mapping[str, Any]) -> list[str]:
        engine, found, cursor = self._desk.engine_of(identity), list[str](), None
        while True:
            page = await engine.search(
                status=where.get("status"),
                name=where.get("name"),
                tags=where.get("tags", ()),
                tool=where.get("tool"),
                asks=where.get("asks", False),
                since_ms=where.get("since_ms", 0),
                limit=_PAGE,
                cursor=cursor,
            )
            found += [head.saga_id for head in page.sagas]
            if len(found) > MAX_SAGAS:
                raise SettingInvalid(f"more than {MAX_SAGAS} sagas fit", hint="narrow the search: tags, since_ms")
            cursor = page.cursor
            if cursor is None:
                return found

    async def get(self, identity: Identity, job_id: str) -> Job:
        """A job of the caller's tenant. Raises ``JobNotFound``."""
        there = await self._documents.read("job", job_id) if job_id.isalnum() else None
        job = None if there is None else _decoded(there)
        if job is None or job.tenant != identity.tenant:
            raise JobNotFound(f"there is no job {cut(job_id, 80)}", hint="GET /v1/jobs lists the jobs")
        return job

    async def list(self, identity: Identity) -> Sequence[Job]:
        """The jobs of the caller's tenant, the last first; those that ended a week ago are removed."""
        found, after = [], ""
        while names := await self._documents.names("job", after, _PAGE):
            after = names[-1]
            for name in names:
                there = await self._documents.read("job", name)
                if there is None:
                    continue
                job = _decoded(there)
                if 0 < job.ended_ms < _now_ms() - _KEEP_MS:
                    await self._documents.remove("job", name, there.revision)
                elif job.tenant == identity.tenant:
                    found.append(job)
        return sorted(found, key=lambda job: (-job.created_ms, job.id))

    # --- carrying out --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out the jobs that are due, until it is cancelled."""
        while True:
            self._new.clear()
            try:
                for name in (await self._documents.due("job", 10)).names:
                    await self._carry_out(name)
                await self._desk.keys.sweep()
            except SagaError as error:
                _log.warning("jobs cannot be carried out now, and will be: %s", error)
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._new.wait()
            except TimeoutError:
                continue

    async def _carry_out(self, name: str) -> None:
        there = await self._documents.read("job", name)
        while there is not None:
            job = _decoded(there)
            claimed = await self._write(there, job)
            if claimed is None:
                return  # another server has it
            batch = job.sagas[job.worked : job.worked + _BATCH]
            places = asyncio.Semaphore(_AT_ONCE)

            async def one(
                saga_id: str, job: Job = job, places: asyncio.Semaphore = places
            ) -> tuple[str, SagaError | None]:
                async with places:
                    return saga_id, await self._act(job, saga_id)

            found = await asyncio.gather(*map(one, batch))
            counts = Counter(job.counts)
            for saga_id, error in found:
                counts["done" if error is None else error.code] += 1
                if error is None:
                    job.successes += [saga_id] if len(job.successes) < _LISTED else []
                elif len(job.failures) < _LISTED:
                    job.failures.append({"saga_id": saga_id, "code": error.code, "message": error.message[:500]})
            job.counts, job.worked = dict(counts), job.worked + len(batch)
            if job.worked >= len(job.sagas):
                job.ended_ms = _now_ms()
                await self._write(claimed, job)
                return
            there = await self._write(claimed, job)

    async def _write(self, there: Document, job: Job) -> Document | None:
        # Different servers write different bodies only by chance: the claim is part of it.
        body = msgspec.json.encode({**msgspec.to_builtins(job), "claim": secrets.token_hex(8)})
        due_ms = 0 if job.ended_ms else _now_ms() + _CLAIM_MS
        return await self._documents.write("job", there._replace(body=body), due_ms=due_ms)

    async def _act(self, job: Job, saga_id: str) -> SagaError | None:
        desk, identity = self._desk, Identity(job.by, frozenset({"resolve"}), job.tenant)
        try:
            if job.action == "cancel":
                await acts.cancel(desk, identity, saga_id, job.note, key=_key(job, saga_id))
            elif job.action == "resume":
                await acts.resume(desk, identity, saga_id)
            else:
                await self._resolve(identity, job, saga_id)
        except SagaError as error:
            return error
        return None

    async def _resolve(self, identity: Identity, job: Job, saga_id: str) -> None:
        """Give the decision to each open question of the saga that is of the kind and has it as an option.

        One that is refused keeps no other one from its answer. Raises what the first refusal raised.
        """
        refused: DecisionRefused | None = None
        body = await shown(await self._desk.engine_of(identity).show(saga_id))
        for question in body["questions"]:
            if job.kind in ("", question["kind"]) and job.decision in question["options"]:
                try:
                    await self._answer(identity, job, saga_id, question)
                except DecisionRefused as error:
                    refused = refused or error
        if refused is not None:
            raise refused

    async def _answer(self, identity: Identity, job: Job, saga_id: str, question: Mapping[str, Any]) -> None:
        """Answer one question; without ``twice`` no call is repeated that may happen twice."""
        about = question["question_id"]
        answer = partial(
            acts.resolve,
            self._desk,
            identity,
            saga_id,
            str(question["step_id"]),
            job.decision,
            note=job.note,
            key=_key(job, saga_id, about),
            question=about,
        )
        try:
            await answer()
        except DecisionRefused as error:
            mark = error.context.get("expect") if job.twice else None
            if mark is None:
                raise
            await answer(expect=mark)


def _key(job: Job, *parts: str) -> str:
    """The key of what a job does to a saga: a server that carries it on does not do it again."""
    return f"key-{hashed(job.tenant, job.id, *parts)}"


def _decoded(document: Document) -> Job:
    return msgspec.json.decode(document.body, type=Job)


def _now_ms() -> int:
    return machine_clock.time_ns() // 1_000_000
