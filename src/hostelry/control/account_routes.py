"""GET /internal/accounts, and POST /internal/account-acts: an act on accounts, users or keys.

Acts are audited, then performed. 409 has the reason why an act is not allowed, 404 names an unknown
account, user or key, 400 an invalid body. With 503 or 507 nothing was done.
"""

import asyncio
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.api.context import CallContext
from hostelry.audit.acts import AuditEntry
from hostelry.audit.trail import AuditTrail
from hostelry.aws.access_keys import AccessKeySecrets
from hostelry.base.clock import Clock
from hostelry.base.errors import RetryableError, ServiceError
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse
from hostelry.control.account_acts import AccountActs, AccountRequest
from hostelry.control.audit_routes import MAX_CHARS
from hostelry.domain.role import build_role_arn
from hostelry.domain.scope import Scope
from hostelry.fleet.shapes import get_shape
from hostelry.home.home import Credentials
from hostelry.metrics.protocol import MetricStore
from hostelry.store.records import State


class AccountRoutes:
    """Handlers of the routes.

    Args:
        first: the platform's first account.
        build_context: the context of a call of the platform itself in an account.
    """

    def __init__(
        self,
        state: State,
        first: str,
        build_context: Callable[[str], CallContext],
        audit: AuditTrail,
        clock: Clock,
    ) -> None:
        self._state = state
        self._acts = AccountActs(state, first, build_context)
        self._audit = audit
        self._clock = clock

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route("/internal/accounts", self.list_accounts, methods=["GET"]),
            Route("/internal/account-acts", self.act, methods=["POST"]),
        )

    async def list_accounts(self, request: Request) -> Response:
        """`accounts`: every account with its users and keys, without secrets."""
        found = await asyncio.to_thread(self._acts.list_accounts, self._clock.now())
        return JsonResponse({"accounts": found})

    async def act(self, request: Request) -> Response:
        """Perform an act. The answer has the secret of a new key, once."""
        try:
            asked = decode(await request.body(), AccountRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return JsonResponse({"error": f"no act: {error}"}, 400)
        try:
            return JsonResponse(await asyncio.to_thread(self._perform, asked))
        except ServiceError as error:
            return JsonResponse({"error": error.message}, error.http_status)
        except RetryableError as error:
            return JsonResponse({"error": f"Try again: {error}"}, 503)
        except OSError as error:
            message = f"The audit log cannot be written, so nothing was done: {error}"
            return JsonResponse({"error": message}, 507)

    def _perform(self, asked: AccountRequest) -> dict[str, object]:
        with self._state.writing:
            account = self._acts.find_target_account(asked)
            self._note(asked, account, "begun")
            try:
                return self._acts.perform(asked)
            except (ServiceError, RetryableError) as error:
                self._note(asked, account, f"refused: {error}")
                raise

    def _note(self, asked: AccountRequest, account: str, outcome: str) -> None:
        self._audit.append(
            AuditEntry(
                at=self._clock.now(),
                who=asked.who,
                act=asked.act,
                target=asked.target,
                outcome=outcome[:MAX_CHARS],
                account=account,
            )
        )


def build_account_routes(
    state: State,
    credentials: Credentials,
    audit: AuditTrail,
    clock: Clock,
    metrics: MetricStore,
) -> tuple[Route, ...]:
    """The routes of a control."""
    secrets = AccessKeySecrets(credentials.internal_key)

    def build_context(account: str) -> CallContext:
        return CallContext(
            scope=Scope(account, credentials.region),
            state=state,
            now=clock.now(),
            get_shape=get_shape,
            role_arn=build_role_arn(account, credentials.role_name),
            role_name=credentials.role_name,
            first_account=credentials.account_id,
            metrics=metrics,
            derive_secret=secrets.derive,
        )

    first = credentials.account_id
    return AccountRoutes(state, first, build_context, audit, clock).routes()
