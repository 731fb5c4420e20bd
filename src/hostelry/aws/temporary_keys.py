"""Temporary keys: a sealed session token contains its owner and its end.

::

    token  = base64url(seal + claims)      claims: a `Session` as JSON
    seal   = HMAC-SHA256(key, claims)      key: derived from a secret of the home
    secret = derived from key and claims, so that nothing is stored

A process with the key verifies a token by itself. The claims are not secret.

A home has two sealing keys. The key of control and gateways seals any session. The key of agents,
which is derived from it (`agents_key`), seals only sessions of an agent (`Session.is_agents`).
"""

import base64
import binascii
from collections.abc import Mapping
from hmac import compare_digest
from hmac import digest as hmac_digest

import msgspec
from msgspec.structs import asdict

from hostelry.base.json import decode

MAX_TOKEN_CHARACTERS = 8192
# A verifier believes no session that lasts longer: it is the most that STS gives (GetSessionToken).
MAX_LIFETIME_S = 129_600
FOR_OBJECTS = "objects"
_SEAL_BYTES = 32
_FIRST_CLAIMS = frozenset(
    {"access_key_id", "account_id", "expires_at", "role_name", "role_id", "session_name"}
)
_SECRET_CHARACTERS = 40


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Claims of temporary keys. Without a role and a user, they are the account's own.

    Keys that an agent issues have its instance as the session name, and no role. A copy invokes
    models with them. With the `purpose` FOR_OBJECTS the agent reads artifacts with them.

    The session policies `policies` (documents) and `policy_arns` (managed policies) limit the
    session further. `tags` are tags of the session alone. The tags with the keys `transitive` pass
    on to roles that the session assumes. `bounded_by` is the role whose policies limit the keys of
    an agent. `issued_at` is 0 in earlier keys.
    """

    access_key_id: str
    account_id: str
    expires_at: int
    role_name: str = ""
    role_id: str = ""
    session_name: str = ""
    purpose: str = ""
    user_name: str = ""
    user_id: str = ""
    policies: tuple[str, ...] = ()
    policy_arns: tuple[str, ...] = ()
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    transitive: tuple[str, ...] = ()
    source_identity: str = ""
    bounded_by: str = ""
    issued_at: int = 0

    @property
    def is_agents(self) -> bool:
        """Whether an agent issued them: they may invoke models, or read objects, and no more."""
        return bool(self.session_name) and not self.role_name and not self.user_name

    @property
    def reads_objects_only(self) -> bool:
        """Whether they are an agent's own, by which it reads artifacts."""
        return self.is_agents and self.purpose == FOR_OBJECTS


class TemporaryKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Keys as they are issued."""

    access_key_id: str
    secret_access_key: str
    session_token: str
    expires_at: int


def agents_key(home_key: str) -> str:
    """The key of a home's agents: of calls to them, and of the keys that they issue."""
    return hmac_digest(home_key.encode(), b"hostelry agents 1", "sha256").hex()


class AgentSeal:
    """Issues the keys of an agent's sessions. `key` is `agents_key`."""

    def __init__(self, key: str) -> None:
        self._key = _agents_sealing_key(key)

    def issue(self, session: Session) -> TemporaryKeys:
        """The keys of `session`, which verifiers accept only for an agent's session."""
        return _issue(self._key, session)


class TokenSeal:
    """Issues temporary keys, and opens their tokens and the tokens of the home's agents.

    Args:
        home_key: a secret that control and gateways of one platform share, and no other process
            knows.
    """

    def __init__(self, home_key: str) -> None:
        self._key = hmac_digest(home_key.encode(), b"hostelry temporary keys 1", "sha256")
        self._agents = _agents_sealing_key(agents_key(home_key))

    def issue(self, session: Session) -> TemporaryKeys:
        """The keys of `session`."""
        return _issue(self._key, session)

    def open(self, token: str) -> Session | None:
        """The session of a token, which may be expired. None for foreign tokens."""
        opened = self.open_with_secret(token)
        return None if opened is None else opened[0]

    def open_with_secret(self, token: str) -> tuple[Session, str] | None:
        """The session of a token, expired or not, and its secret. None if it was not sealed here.

        A session that an agent sealed must be an agent's session.
        """
        if len(token) > MAX_TOKEN_CHARACTERS:
            return None
        try:
            content = base64.b64decode(token, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        seal, claims = content[:_SEAL_BYTES], content[_SEAL_BYTES:]
        if compare_digest(seal, _seal(self._key, claims)):
            return decode(claims, Session), _secret(self._key, claims)
        if compare_digest(seal, _seal(self._agents, claims)):
            session = decode(claims, Session)
            return (session, _secret(self._agents, claims)) if session.is_agents else None
        return None


def _agents_sealing_key(key: str) -> bytes:
    return hmac_digest(key.encode(), b"hostelry agents' temporary keys 1", "sha256")


def _issue(key: bytes, session: Session) -> TemporaryKeys:
    # Without empty claims that earlier versions do not know.
    claims = msgspec.json.encode(
        {name: it for name, it in asdict(session).items() if it or name in _FIRST_CLAIMS}
    )
    return TemporaryKeys(
        access_key_id=session.access_key_id,
        secret_access_key=_secret(key, claims),
        session_token=base64.urlsafe_b64encode(_seal(key, claims) + claims).decode(),
        expires_at=session.expires_at,
    )


def _seal(key: bytes, claims: bytes) -> bytes:
    return hmac_digest(key, b"seal:" + claims, "sha256")


def _secret(key: bytes, claims: bytes) -> str:
    drawn = hmac_digest(key, b"secret:" + claims, "sha256")
    return base64.b64encode(drawn).decode()[:_SECRET_CHARACTERS]


def claimed_account(token: str) -> str | None:
    """The account that a token claims, sealed here or not. None for an invalid token.

    The seal is not verified. The account says where to ask, and never who sent the request.
    """
    if len(token) > MAX_TOKEN_CHARACTERS:
        return None
    try:
        claims = base64.b64decode(token, altchars=b"-_", validate=True)[_SEAL_BYTES:]
        return decode(claims, Session).account_id
    except (binascii.Error, ValueError):
        return None


def session_header(session: Session) -> str:
    """`session` as the value of a header between the platform's own processes."""
    return base64.urlsafe_b64encode(msgspec.json.encode(session)).decode()


def parse_session_header(value: str) -> Session:
    """The session of such a header."""
    return decode(base64.urlsafe_b64decode(value), Session)
