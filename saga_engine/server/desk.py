"""What every handler works with: the caller, the engine of the caller's tenant, and the server's limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.requests import Request

from saga_engine.core.states import SAGA_FINAL
from saga_engine.errors import Forbidden, PlanInvalid, QuotaExceeded, SagaNotFound, Unauthenticated
from saga_engine.execution.ids import check_saga_id
from saga_engine.plan.values import cut
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.server.identity import Identity
from saga_engine.server.keys import Keys
from saga_engine.server.limits import Rates, Streams
from saga_engine.server.oidc import Oidc
from saga_engine.server.settings import Quota, ServerSettings
from saga_engine.server.tokens import Tokens

if TYPE_CHECKING:
    from saga_engine.api import Coordinator


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
        self.keys = Keys(coordinator.store.documents())
        self.rates = Rates(settings.requests_per_s, settings.burst)
        #: Of callers who are not known: by address.
        self.strangers = Rates(settings.requests_per_s, settings.burst)
        self.streams = Streams(settings.max_streams, settings.max_streams_each)
        #: Set when the server stops: it is not ready any more, and its streams end.
        self.draining = asyncio.Event()
        self._steps: dict[str, Rates] = {}
        self._submitting: dict[str, asyncio.Lock] = {}

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
        return not identity.token_id or await self.tokens.valid(identity.token_id)

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

    def quota(self, identity: Identity) -> Quota:
        """The quota of the caller's tenant."""
        tenant = self.settings.tenants.get(identity.tenant)
        return self.settings.quota if tenant is None else tenant.quota

    def submitting(self, identity: Identity) -> asyncio.Lock:
        """Submissions of a tenant with a quota take turns, so that two do not take the last place."""
        return self._submitting.setdefault(identity.tenant, asyncio.Lock())

    async def admit(self, identity: Identity, steps: int) -> None:
        """Take the place of a new saga with so many steps. Raises ``QuotaExceeded``."""
        quota = self.quota(identity)
        if quota.live_sagas:
            statuses = (await self.engine_of(identity).overview()).statuses
            live = sum(count for status, count in statuses.items() if status not in SAGA_FINAL)
            if live >= quota.live_sagas:
                raise QuotaExceeded(
                    f"{live} sagas have not ended, and {quota.live_sagas} may be live",
                    hint="wait until some have ended",
                    retry_after_s=5,
                )
        if quota.steps_per_s:
            rates = self._steps.setdefault(identity.tenant, Rates(quota.steps_per_s, max(quota.steps_per_s, 1.0)))
            wait_s = rates.wait_s("", max(steps, 1))
            if wait_s:
                raise QuotaExceeded(
                    f"more than {quota.steps_per_s:g} steps a second are submitted",
                    hint="submit it again later",
                    retry_after_s=wait_s,
                )
