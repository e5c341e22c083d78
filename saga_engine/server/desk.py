"""What every handler works with: the caller, the engine of the caller's tenant, and the server's limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from saga_engine.errors import Forbidden, PlanInvalid, SagaError, SagaNotFound, Unauthenticated
from saga_engine.execution.ids import check_saga_id
from saga_engine.listener.limits import Places, Rates, checks
from saga_engine.loggers import logger_of
from saga_engine.plan.values import cut
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.server.goals import Goals
from saga_engine.server.identity import Identity
from saga_engine.server.keys import Keys
from saga_engine.server.oidc import Oidc
from saga_engine.server.sessions import SignIns
from saga_engine.server.settings import Quota, ServerSettings
from saga_engine.server.tokens import Tokens

if TYPE_CHECKING:
    from saga_engine.api import Coordinator
    from saga_engine.runtime.quota import Declared
    from saga_engine.runtime.supervisor import Supervisor

_log = logger_of("saga_engine.server")

#: How often, in seconds, a server declares its quotas.
_DECLARED_EVERY_S: Final = 10.0


class Desk:
    """The state of one server. ``engines``: the coordinators of tenants, by name."""

    def __init__(
        self, coordinator: Coordinator, settings: ServerSettings, engines: Mapping[str, Coordinator] | None = None
    ) -> None:
        self.coordinator = coordinator
        self.settings = settings
        self.engines = dict(engines or {})
        self.tokens = Tokens(coordinator.store.documents())
        self.oidc = None if settings.oidc is None else Oidc(settings.oidc)
        self.sign_ins = SignIns(coordinator.store.documents())
        self.keys = Keys(coordinator.store.documents())
        self.rates = Rates(settings.requests_per_s, settings.burst)
        #: Of callers who are not known: by address.
        self.strangers = Rates(settings.requests_per_s, settings.burst)
        # What is held open leaves a quarter of the connections for requests that end, such as probes.
        most = settings.max_connections * 3 // 8
        self.streams = Places(
            min(settings.max_streams, most),
            settings.max_streams_each,
            "streams are open",
            "close one, or poll the history with `after`",
        )
        self.waits = Places(
            min(settings.max_waits, most), settings.max_waits_each, "requests wait for sagas", "ask without `wait`"
        )
        self.works = checks()
        #: What models were given in the console.
        self.goals = Goals()
        #: The limits of others of which the log has told.
        self._told: dict[Supervisor, Declared] = {}
        for supervisor, quota in self.quotas():
            supervisor.note_quota([quota.live_sagas, quota.steps_per_s, *sorted(quota.max_cost_per_day.items())])
        #: Set when the server stops: it is not ready any more, and its streams end.
        self.draining = asyncio.Event()

    def by_https(self, request: Request) -> bool:
        """Whether the browser came by TLS, which a proxy may have ended: a form says so, and ``public_url``."""
        origin = request.headers.get("origin", "")
        return any(url.startswith("https://") for url in (str(request.url), origin, self.settings.public_url))

    # --- the caller ----------------------------------------------------------------------------------------------

    def identity(self, request: Request) -> Identity:
        """The caller. Raises ``Unauthenticated``."""
        found: Identity | None = request.scope.get("saga.identity")
        if found is None:
            raise Unauthenticated(
                "this needs a token", hint="send 'Authorization: Bearer TOKEN'; `saga token create` makes one"
            )
        return found

    async def still_known(self, request: Request) -> bool:
        """Whether the caller's token still opens something: streams last longer than tokens."""
        identity = self.identity(request)
        if identity.via == "oidc":
            return machine_clock.time_ns() // 1_000_000 < identity.expires_ms
        if identity.browser and not await self.sign_ins.token_id(identity.browser):
            return False
        return not identity.token_id or await self.tokens.valid(identity.token_id)

    async def signed_in(self, cookie: str) -> Identity | None:
        """Whom the cookie of a browser stands for; None: it is not signed in."""
        found = await self.tokens.known(await self.sign_ins.token_id(cookie))
        return None if found is None else replace(found, via="cookie", browser=cookie)

    def place(self, places: Places, identity: Identity) -> AbstractContextManager[None]:
        """A place of a caller among the requests that are held open. Raises ``QuotaExceeded`` when it is entered."""
        return places.taken(identity.token_id or identity.who, operator=identity.may("resolve"))

    def require(self, request: Request, scope: str) -> Identity:
        """The caller, who has this scope. Raises ``Unauthenticated`` and ``Forbidden``."""
        identity = self.identity(request)
        identity.require(scope)
        return identity

    def engine(self, request: Request) -> Coordinator:
        """The coordinator of the caller's tenant. Raises ``Unauthenticated`` and ``Forbidden``."""
        return self.engine_of(self.identity(request))

    def engine_of(self, identity: Identity) -> Coordinator:
        """The coordinator of a caller's tenant. Raises ``Forbidden``."""
        return self.engine_of_tenant(identity.tenant)

    def engine_of_tenant(self, tenant: str) -> Coordinator:
        """The coordinator of a tenant. Raises ``Forbidden``."""
        if not tenant:
            return self.coordinator
        found = self.engines.get(tenant)
        if found is None:
            raise Forbidden(
                f"this server does not serve the tenant {tenant}", hint="[server.tenants.NAME] in saga.toml"
            )
        return found

    def saga_id(self, request: Request) -> str:
        """The saga's id in the path. Raises ``SagaNotFound`` for what is no id."""
        given = request.path_params["saga_id"]
        try:
            return check_saga_id(given)
        except PlanInvalid:
            raise SagaNotFound(f"there is no saga {cut(given, 80)}", saga_id=given[:128]) from None

    # --- what a tenant may use -----------------------------------------------------------------------------------

    def quotas(self) -> Iterator[tuple[Supervisor, Quota]]:
        """The quotas that the settings state, each with what works on its namespace: a tenant's, or the server's."""
        for tenant in ("", *self.engines):
            found = self.settings.tenants.get(tenant)
            quota = self.settings.quota if found is None else found.quota
            if quota is not None:
                yield self.engine_of_tenant(tenant).supervisor, quota

    async def limit(self) -> None:
        """Declare the quotas of the settings to all who work on their namespaces; the smallest of all servers holds."""
        for supervisor, quota in self.quotas():
            owner = (await supervisor.lease()).owner
            stated = (quota.live_sagas, quota.steps_per_s, dict(quota.max_cost_per_day))
            held = await supervisor.quota.declare(owner, *stated)
            holds = (held.live_sagas, held.steps_per_s, held.day_cost)
            if holds != stated and held != self._told.get(supervisor):
                self._told[supervisor] = held
                _log.warning(
                    "another server of this namespace has a smaller quota, which holds: live_sagas = %d, steps_per_s ="
                    " %g, max_cost_per_day = %s, and not %d, %g and %s as stated here; declared by %s",
                    *(*holds, *stated),
                    ", ".join(sorted((held.servers.keys() | held.day_costs.keys()) - {owner})),
                )

    async def keep_limiting(self) -> None:
        """Declare them again and again: what another server has declared ends with it."""
        while any(self.quotas()):
            await asyncio.sleep(_DECLARED_EVERY_S)
            try:
                await self.limit()
            except SagaError as error:
                _log.info("the quota could not be declared again: %s", error)
