"""Context of an operation: the caller, the state and the instant of one call."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from hostelry.audit.record import AuditedCaller
from hostelry.audit.trail import AuditTrail
from hostelry.aws.temporary_keys import Session, TemporaryKeys
from hostelry.base.errors import HostelryError, ServiceError
from hostelry.base.root_key import RootKey
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.scope import Scope
from hostelry.domain.shape import NO_RESOURCES, InstanceType, Shape
from hostelry.events.call_rows import CallRows
from hostelry.logs.events import LogsUnavailable
from hostelry.logs.store import LogStore
from hostelry.messaging.services import Messaging
from hostelry.metrics.protocol import MetricStore
from hostelry.permissions.authorization import Authorization
from hostelry.permissions.wildcard import Context
from hostelry.principals.caller import Caller
from hostelry.store.records import State

Params = Mapping[str, Any]
Result = dict[str, Any]
MAX_WORK_S = 5.0  # the time that one call may compute


def no_keys(_: Session) -> TemporaryKeys:
    """Raise ServiceUnavailable, because temporary keys cannot be issued."""
    raise ServiceError("ServiceUnavailable", "No keys can be issued here.", 503)


def no_secret(_: str) -> str:
    """Raise ServiceUnavailable, because access keys cannot be made."""
    raise ServiceError("ServiceUnavailable", "No keys can be made here.", 503)


def no_provider_keys(issuer: str, _: str) -> tuple[Mapping[str, Any], ...]:
    """Raise IDPCommunicationError, because identity providers cannot be asked."""
    raise ServiceError("IDPCommunicationError", f"{issuer} cannot be asked here.", 400)


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, the state and the instant of one call.

    `scope` owns the resources that the call names. `get_shape` returns the declared shape of an
    instance type, and `instance_types` are the types with a declared shape. `machine` has the
    resources of this machine, and `find_price` the price per hour of an instance type, or None if
    it is not known. The root of the account acts in its execution role, `role_arn` and `role_name`.
    `caller` is the principal that calls. None: the platform itself, which may do everything.
    `request_keys` are the condition keys of the request. `note_decision` is called with each
    decision on the call, and `name_caller` with a caller that a token in the parameters proves.
    `first_account` is the platform's first account, whose keys are in the home. `session` is set
    for a caller with temporary keys, which `issue_keys` makes, and `derive_secret` returns the
    secret of an access key id. `find_provider_keys` returns the public keys (JWK) of the OpenID
    Connect provider with an issuer URL. It asks the provider again if none has the given key id.
    `pace` divides AWS's waits of minutes. `root_key` seals key material. Calls that cannot
    concern logs need no `log_store`. With `checks_roles` models need an existing role.
    `messaging` serves topics and queues. With `may_wait` a long poll may raise NotYetError.
    `calls` stores the calls of events, and `chain_length` is the chain length of the event that
    caused this call. `foreign_s3` is the address of another object store than the platform's
    own, or empty. `verdict_of` describes the verdict on an endpoint's update. `is_late`
    returns True if no client waits for the answer. `worked_s` is the time that the call has
    computed so far. `trail` has the records of calls.
    """

    scope: Scope
    state: State
    now: float
    get_shape: Callable[[str], Shape]
    role_arn: str
    role_name: str
    session: Session | None = None
    caller: Caller | None = None
    first_account: str = ""
    request_keys: Context = msgspec.field(default_factory=dict)
    note_decision: Callable[[Authorization], None] = lambda _: None
    name_caller: Callable[[AuditedCaller], None] = lambda _: None
    pace: float = 1.0
    metrics: MetricStore
    instance_types: Mapping[str, InstanceType] = msgspec.field(default_factory=dict)
    machine: Shape = NO_RESOURCES
    find_price: Callable[[str], float | None] = lambda _: None
    root_key: RootKey = msgspec.field(default_factory=RootKey)
    log_store: LogStore | None = None
    issue_keys: Callable[[Session], TemporaryKeys] = no_keys
    derive_secret: Callable[[str], str] = no_secret
    find_provider_keys: Callable[[str, str], Sequence[Mapping[str, Any]]] = no_provider_keys
    checks_roles: bool = False
    messaging: Messaging | None = None
    may_wait: bool = False
    calls: CallRows | None = None
    chain_length: int = 0
    foreign_s3: str = ""
    verdict_of: Callable[[Endpoint], str | None] = lambda _: None
    is_late: Callable[[], bool] = lambda: False
    worked_s: Callable[[], float] = lambda: 0.0
    trail: AuditTrail | None = None

    @property
    def is_first_account(self) -> bool:
        """Whether the call is in the platform's first account."""
        return self.first_account in ("", self.scope.account)

    def check_time(self) -> None:
        """Raise ServiceError once the call is late or has computed for `MAX_WORK_S`.

        Operations whose work depends on a client's values call this at each step, since callers
        share control's threads and its interpreter.
        """
        if self.worked_s() > MAX_WORK_S:
            raise ServiceError(
                "ThrottlingException",
                f"Rate exceeded: the call computed for more than {MAX_WORK_S:g} s, the limit. Ask"
                " for less in one call: fewer values, conditions, rules or events.",
            )
        if self.is_late():
            raise ServiceError(
                "ThrottlingException",
                "Rate exceeded: the call waited and ran for longer than a client waits for its"
                " answer. Try again, with fewer calls at a time, or ask for less in one.",
            )

    @property
    def logs(self) -> LogStore:
        """The store of log events. Raises LogsUnavailable without one."""
        if self.log_store is None:
            raise LogsUnavailable("this process keeps no log events")
        return self.log_store

    @property
    def messages(self) -> Messaging:
        """Topics and queues. Raises ServiceError 503 in a process without them."""
        if self.messaging is None:
            raise ServiceError("ServiceUnavailable", "Messages are not served here.", 503)
        return self.messaging

    @property
    def audit_trail(self) -> AuditTrail:
        """The records of calls. Raises ServiceError 503 in a process without them."""
        if self.trail is None:
            raise ServiceError("ServiceUnavailable", "Events are not looked up here.", 503)
        return self.trail

    @property
    def event_calls(self) -> CallRows:
        """The calls of events. Raises ServiceError 503 in a process without them."""
        if self.calls is None:
            raise ServiceError("ServiceUnavailable", "Events are not served here.", 503)
        return self.calls


class NotYetError(HostelryError):
    """The queue is empty. Repeat the call when a message comes, within `wait_s`.

    `next_at` is when a delayed message becomes visible, or None.
    """

    def __init__(self, queue_arn: str, wait_s: float, next_at: float | None) -> None:
        super().__init__(queue_arn)
        self.queue_arn = queue_arn
        self.wait_s = wait_s
        self.next_at = next_at


Operation = Callable[[CallContext, Params], Result]


def new_generation(context: CallContext) -> int:
    """Make a generation that is greater than all before, also of deleted resources."""
    return context.state.store.revision() + 1
