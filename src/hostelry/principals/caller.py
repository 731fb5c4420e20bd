"""Resolves a verified caller to the principal that it acts as, with its policies. Pure."""

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache

import msgspec

from hostelry.aws.sigv4 import INVALID_TOKEN, Identity
from hostelry.aws.temporary_keys import Session
from hostelry.base.errors import ServiceError
from hostelry.domain.role import assumed_role_arn
from hostelry.permissions.authorization import Grants, ResourcePolicy
from hostelry.permissions.document import DocumentKind, MalformedDocument, parse_statements
from hostelry.permissions.evaluation import Policy
from hostelry.permissions.wildcard import Context
from hostelry.principals.table import PolicyRow, PrincipalRow, PrincipalTable, principal_key

MAX_KEPT_CALLERS = 4096


class CallerKind(Enum):
    """The kind of a caller, in the words of CloudTrail's userIdentity."""

    ROOT = "Root"
    USER = "IAMUser"
    ROLE = "AssumedRole"
    AGENT = "AWSService"


PRINCIPAL_TYPES = {
    CallerKind.ROOT: "Account",
    CallerKind.USER: "User",
    CallerKind.ROLE: "AssumedRole",
    CallerKind.AGENT: "Service",
}
"""The values of the condition key aws:PrincipalType."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A principal that calls.

    `arn` is the ARN of the user, of the role's session or of the account's root, and `user_id` its
    unique id. `principal_arn` is the ARN of the user or role itself. `name` is the name of the user
    or role. `who` are the names that a resource's policy may call it by. `keys` are the condition
    keys that depend on the caller alone.
    """

    kind: CallerKind
    account: str
    arn: str
    user_id: str
    principal_arn: str
    name: str = ""
    access_key_id: str = ""
    session: Session | None = None
    grants: Grants
    who: frozenset[str]
    keys: Context

    @property
    def principal(self) -> str:
        """The name that requests count for: `role/NAME`, `user/NAME`, `copy/ID`, or "" (root)."""
        if self.kind is CallerKind.AGENT and self.session is not None:
            return f"copy/{self.session.session_name}"
        prefix = {CallerKind.ROLE: "role/", CallerKind.USER: "user/"}.get(self.kind)
        return f"{prefix}{self.name}" if prefix else ""


class Principals:
    """Finds callers in a table. `owner` is the platform's first account.

    A caller is resolved once for each table, access key and session.
    """

    def __init__(self, table: PrincipalTable, owner: str) -> None:
        self.table = table
        self._owner = owner
        self._kept: dict[str, tuple[Session | None, Caller]] = {}

    def resolve(self, identity: Identity) -> Caller:
        """The caller with these keys. Raises ServiceError 403 if they are not valid any more."""
        kept = self._kept.get(identity.access_key_id)
        if kept is not None and kept[0] is identity.session:
            return kept[1]
        caller = self._resolve(identity)
        if len(self._kept) >= MAX_KEPT_CALLERS:
            self._kept.clear()
        self._kept[identity.access_key_id] = (identity.session, caller)
        return caller

    def find_user(self, account: str, user: str, access_key_id: str = "") -> Caller:
        """The user with the key `user` in the table. Raises ServiceError 403 without it."""
        row = self.table.users.get(user)
        if row is None or not self._is_open(account):
            raise _invalid()
        return self._build_user(row, access_key_id, None)

    def find_principal(self, account: str, principal: str) -> Caller:
        """The caller that a user or role would be: an ARN, `user/NAME`, `role/NAME` or `root`.

        Raises ServiceError NoSuchEntity (404) for an unknown one.
        """
        place = principal.split(":", 5)[-1] if principal.startswith("arn:") else principal
        kind, _, path = place.partition("/")
        key = principal_key(account, path.rpartition("/")[2])
        found = {"user": self.table.users, "role": self.table.roles}.get(kind, {}).get(key)
        if place == "root" and self._is_open(account):
            return _build_root(account, "", None)
        if found is None or (principal.startswith("arn:") and found.arn != principal):
            raise ServiceError(
                "NoSuchEntity",
                f"Account {account} has no principal {principal:.300}. Name a user/NAME, a"
                " role/NAME, root, or the ARN of a user or role.",
                404,
            )
        if kind == "user":
            return self._build_user(found, "", None)
        session = Session(
            access_key_id="",
            account_id=account,
            expires_at=0,
            role_name=found.name,
            role_id=found.id,
            session_name="explain",
        )
        return self._build_role(_build_identity(account), session)

    def resolve_agent(self, identity: Identity, session: Session) -> Caller:
        """An agent of an account that exists. Raises ServiceError 403 for another account."""
        if not self._is_open(session.account_id):
            raise _invalid()
        return self._build_agent(identity, session)

    def _resolve(self, identity: Identity) -> Caller:
        account, session = identity.account_id, identity.session
        if not self._is_open(account):
            raise _invalid()
        if session is not None and session.role_name:
            return self._build_role(identity, session)
        if session is not None and session.user_name:
            row = self.table.users.get(principal_key(account, session.user_name))
            if row is None or row.id != session.user_id:
                raise _invalid()
            return self._build_user(row, identity.access_key_id, session)
        if session is not None and session.is_agents:
            return self._build_agent(identity, session)
        if session is not None:
            return _build_root(account, identity.access_key_id, session)
        if not identity.user:
            return _build_root(account, identity.access_key_id, None)
        key = self.table.access_keys.get(identity.access_key_id)
        if key is None or key.user != principal_key(account, identity.user):
            raise _invalid()
        return self.find_user(account, key.user, identity.access_key_id)

    def _is_open(self, account: str) -> bool:
        return account == self._owner or account in self.table.accounts

    def _build_user(self, row: PrincipalRow, key_id: str, session: Session | None) -> Caller:
        keys = _common_keys(CallerKind.USER, row.account, row.arn, row.id, session)
        keys |= {"aws:username": (row.name,), **_tag_keys(row.tags)}
        return Caller(
            kind=CallerKind.USER,
            account=row.account,
            arn=row.arn,
            user_id=row.id,
            principal_arn=row.arn,
            name=row.name,
            access_key_id=key_id,
            session=session,
            grants=self._build_grants(row, session),
            who=_names(row.account, row.arn),
            keys=keys,
        )

    def _build_role(self, identity: Identity, session: Session) -> Caller:
        row = self._find_role(session.account_id, session.role_name)
        if row is None or row.id != session.role_id:
            raise _invalid()
        arn = assumed_role_arn(row.account, row.name, session.session_name)
        user_id = f"{row.id}:{session.session_name}"
        keys = _common_keys(CallerKind.ROLE, row.account, row.arn, user_id, session)
        keys |= _tag_keys({**row.tags, **session.tags})
        return Caller(
            kind=CallerKind.ROLE,
            account=row.account,
            arn=arn,
            user_id=user_id,
            principal_arn=row.arn,
            name=row.name,
            access_key_id=identity.access_key_id,
            session=session,
            grants=self._build_grants(row, session),
            who=_names(row.account, row.arn, arn),
            keys=keys,
        )

    def _build_agent(self, identity: Identity, session: Session) -> Caller:
        """An agent, or a copy of a graph: as the account, or bounded by the role of its model."""
        account, arn = session.account_id, f"arn:aws:iam::{session.account_id}:root"
        grants = Grants(is_root=True)
        if session.bounded_by:
            row = self._find_role(account, session.bounded_by)
            grants = Grants() if row is None else self._build_grants(row, None)
            arn = arn if row is None else row.arn
        return Caller(
            kind=CallerKind.AGENT,
            account=account,
            arn=arn,
            user_id=session.session_name,
            principal_arn=arn,
            access_key_id=identity.access_key_id,
            session=session,
            grants=grants,
            who=_names(account, arn),
            keys=_common_keys(CallerKind.AGENT, account, arn, session.session_name, session),
        )

    def _find_role(self, account: str, name: str) -> PrincipalRow | None:
        return self.table.roles.get(principal_key(account, name))

    def _build_grants(self, row: PrincipalRow, session: Session | None) -> Grants:
        """The policies of a user or role, and of its session. Nothing is allowed by a lost one."""
        boundary, limits = None, None
        if row.boundary is not None:
            boundary = self._parse_policies([row.boundary])
        if session is not None and (session.policies or session.policy_arns):
            own = [
                PolicyRow(id=f"session_policy_{number}", type="session", document=it)
                for number, it in enumerate(session.policies, start=1)
            ]
            limits = (*_parse_rows(own), *self._parse_policies(session.policy_arns))
        return Grants(
            identity=self._parse_policies(row.policies), boundary=boundary, session=limits
        )

    def _parse_policies(self, names: Iterable[str]) -> tuple[Policy, ...]:
        policies = self.table.policies
        return _parse_rows(policies[it] for it in names if it in policies)


CHANGING_KEYS = frozenset({"aws:epochtime", "aws:currenttime", "aws:sourceip", "aws:useragent"})
"""The keys of `request_keys` that differ between requests of a caller in a region."""


def request_keys(
    *, now: float, region: str, source_ip: str, user_agent: str, is_secure: bool
) -> dict[str, tuple[str, ...]]:
    """The condition keys that depend on the request alone."""
    return {
        "aws:epochtime": (str(int(now)),),
        "aws:currenttime": (str(int(now)),),
        "aws:requestedregion": (region,),
        "aws:securetransport": ("true" if is_secure else "false",),
        **({"aws:sourceip": (source_ip,)} if source_ip else {}),
        **({"aws:useragent": (user_agent,)} if user_agent else {}),
    }


def _build_root(account: str, access_key_id: str, session: Session | None) -> Caller:
    arn = f"arn:aws:iam::{account}:root"
    return Caller(
        kind=CallerKind.ROOT,
        account=account,
        arn=arn,
        user_id=account,
        principal_arn=arn,
        access_key_id=access_key_id,
        session=session,
        grants=Grants(is_root=True),
        who=_names(account, arn),
        keys=_common_keys(CallerKind.ROOT, account, arn, account, session),
    )


def _build_identity(account: str) -> Identity:
    return Identity(access_key_id="", account_id=account, region="", service="")


def _invalid() -> ServiceError:
    return ServiceError("UnrecognizedClientException", INVALID_TOKEN, 403)


def _names(account: str, *arns: str) -> frozenset[str]:
    """The names by which a policy may call a principal."""
    names = ("*", account, f"arn:aws:iam::{account}:root", *arns)
    return frozenset(f"AWS:{it}" for it in names)


def _common_keys(
    kind: CallerKind, account: str, arn: str, user_id: str, session: Session | None
) -> dict[str, tuple[str, ...]]:
    keys: dict[str, tuple[str, ...]] = {
        "aws:principalarn": (arn,),
        "aws:principalaccount": (account,),
        "aws:principaltype": (PRINCIPAL_TYPES[kind],),
        "aws:userid": (user_id,),
        "aws:principalisawsservice": ("false",),
    }
    if session is not None:
        keys["aws:multifactorauthpresent"] = ("false",)
        if session.issued_at:
            keys["aws:tokenissuetime"] = (str(session.issued_at),)
        if session.source_identity:
            keys["aws:sourceidentity"] = (session.source_identity,)
    return keys


def _tag_keys(tags: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {f"aws:principaltag/{key.lower()}": (value,) for key, value in tags.items()}


def _parse_rows(rows: Iterable[PolicyRow]) -> tuple[Policy, ...]:
    return tuple(parse_policy(it) for it in rows)


@lru_cache(maxsize=4096)
def parse_policy(row: PolicyRow, kind: DocumentKind = DocumentKind.IDENTITY) -> Policy:
    """The policy of a row. A document that cannot be read allows nothing and denies everything."""
    try:
        statements = parse_statements(row.document, kind)
    except MalformedDocument:
        statements = parse_statements(DENY_ALL[kind], kind)
    return Policy(id=row.id, type=row.type, statements=statements)


def build_key_policy(account: str, arn: str, document: str) -> ResourcePolicy:
    """The policy of a KMS key of an account. An empty document leaves the account to decide."""
    row = PolicyRow(id=arn, type="resource", document=document)
    policy = parse_policy(row, DocumentKind.RESOURCE) if document else None
    return ResourcePolicy(account=account, policy=policy, is_decisive=bool(document))


DENY = '{"Version":"2012-10-17","Statement":{"Effect":"Deny","Action":"*","Resource":"*"%s}}'
DENY_ALL = {
    DocumentKind.IDENTITY: DENY % "",
    DocumentKind.RESOURCE: DENY % ',"Principal":"*"',
}
"""Documents that stand for documents which cannot be read."""
