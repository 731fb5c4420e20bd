"""Control's side of joining: tokens are printed, and used.

request                              answer
----------------------------------   ------------------------------------------------------------
POST /internal/join-tokens           200 with a token. 403 without the proof of a host of control
POST /internal/join                  200 with a joined home's files. 403 with the fault, or 503 if
                                     control does not know now
either, without an authority         409: the certificates are the operator's own

Control itself asks for the internal key. For a joining host the node proxy shows it.
"""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry import __version__
from hostelry.base.address import Address
from hostelry.base.certificates import read_facts
from hostelry.base.clock import Clock
from hostelry.base.errors import Conflict, RetryableError, TerminalError
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse
from hostelry.base.peers import PeerName, PeerRole, skew_refusal
from hostelry.base.tls import TlsFolder
from hostelry.cluster.authority import Authority
from hostelry.cluster.further_control import explain_unable, machine
from hostelry.cluster.join_token import KIND as HOST_KIND
from hostelry.cluster.join_token import (
    MAX_S,
    MIN_S,
    JoinedHost,
    JoinToken,
    TokenRecord,
    check_name,
    get_digest,
    refusal,
)
from hostelry.domain.scope import Scope
from hostelry.home.home import Home, UpConfig, load_config, load_credentials
from hostelry.store.protocol import Store
from hostelry.store.records import Records, Versioned

KIND = "join_token"
NO_AUTHORITY = (
    "hosts do not join here by tokens: the certificates are the operator's own (--tls-cert)"
)
PROOF_HEADER = "X-Hostelry-Authority"
KEPT_S = 86400.0  # beyond its time, so that a late host learns why it is refused
HOST_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
HostName = Annotated[str, msgspec.Meta(pattern=HOST_NAME)]
HostId = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9_.]{1,64})?$")]
ID_DIGITS = 16


class TokenRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A token for one host of `role`, for `expires_s` seconds."""

    role: str
    expires_s: float


class JoinRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A host that joins: its token, its key's signing request, PEM, and its version.

    `host_id` is the id of a host that joins again. `machine`, of a host of role control, is its
    `further_control.machine`.
    """

    token: str
    role: str
    name: HostName
    request: str
    version: str = ""
    host_id: HostId = ""
    machine: str = ""


class JoinedFiles(msgspec.Struct, kw_only=True):
    """A joined home's files by their paths in it, base64. `certificate` and `trusted` are PEM.

    `instances`: the folder of the local fleet, if the host is on the same machine.
    """

    cluster: str
    certificate: str
    trusted: str
    files: dict[str, str]
    instances: str = ""


class JoinRoutes(msgspec.Struct, frozen=True, kw_only=True):
    """The routes. `address` is control's own for other hosts.

    `live` has the ids of the hosts that run, None while they are not known.
    """

    home: Home
    store: Store
    owner: Scope
    clock: Clock
    address: str
    live: Callable[[], Collection[str] | None]

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route("/internal/join-tokens", self.new_token, methods=["POST"]),
            Route("/internal/join", self.join, methods=["POST"]),
        )

    async def new_token(self, request: Request) -> Response:
        """A new token."""
        body = await request.body()
        return await asyncio.to_thread(self._new_token, body, request.headers.get(PROOF_HEADER))

    async def join(self, request: Request) -> Response:
        """A joined home's files."""
        return await asyncio.to_thread(self._join, await request.body())

    @property
    def _tokens(self) -> Records[TokenRecord]:
        return Records(self.store, KIND, TokenRecord)

    def _new_token(self, body: bytes, proof: str | None) -> Response:
        authority = self._authority()
        if authority is None:
            return _refuse(409, NO_AUTHORITY)
        if proof is None or not hmac.compare_digest(proof, build_proof(authority, body)):
            return _refuse(403, "tokens are printed on a host of control, by its own user")
        try:
            asked = decode(body, TokenRequest)
            role = PeerRole(asked.role)
        except (msgspec.DecodeError, ValueError) as error:
            return _refuse(400, str(error))
        if not MIN_S <= asked.expires_s <= MAX_S:
            return _refuse(400, f"a token lasts {MIN_S:g} to {MAX_S:g} seconds")
        now = self.clock.now()
        self._forget_old(now)
        token = JoinToken.new(get_fingerprint(authority))
        record = TokenRecord(role=role.value, expires_at=now + asked.expires_s)
        self._tokens.put(self.owner, get_digest(token.secret), record, expect=None)
        return JsonResponse({"token": str(token), "expires_at": record.expires_at})

    def _join(self, body: bytes) -> Response:
        authority = self._authority()
        if authority is None:
            return _refuse(409, NO_AUTHORITY)
        try:
            asked = decode(body, JoinRequest)
            token = JoinToken.parse(asked.token)
        except (msgspec.DecodeError, TerminalError) as error:
            return _refuse(400, str(error))
        if (skew := skew_refusal(asked.name, asked.version, "control", __version__)) is not None:
            return _refuse(409, skew)
        try:
            return JsonResponse(self._admit(authority, asked, get_digest(token.secret)))
        except ValueError as error:
            return _refuse(400, str(error))
        except Conflict:
            return _refuse(403, "the token, or the name, is being used by another host")
        except TerminalError as error:
            return _refuse(403, str(error))
        except RetryableError as error:
            return _refuse(503, str(error))

    def _admit(self, authority: Authority, asked: JoinRequest, token: str) -> JoinedFiles:
        """The answer to a host that may join. Raises TerminalError with the reason otherwise."""
        now, found = self.clock.now(), self._tokens.get(self.owner, token)
        key_digest = hashlib.sha256(asked.request.encode()).hexdigest()
        why = refusal(None if found is None else found.value, key_digest, now)
        if why is not None or found is None:
            raise TerminalError(why or "the token is unknown")
        if found.value.role != asked.role:
            raise TerminalError(f"the token is for a host of role {found.value.role}")
        peer = PeerName(authority.cluster, PeerRole(asked.role), asked.name)
        is_control, is_here = peer.role is PeerRole.CONTROL, asked.machine == machine()
        if is_control:
            self._check_control(is_same_machine=is_here)
        certificate = authority.sign(asked.request.encode(), peer, now)
        host_id = asked.host_id or key_digest[:ID_DIGITS]
        self._take_name(asked.name, JoinedHost(role=asked.role, host_id=host_id, joined_at=now))
        if found.value.used_by is None:
            used = msgspec.structs.replace(found.value, used_by=key_digest)
            self._tokens.put(self.owner, token, used, expect=found.version)
        return JoinedFiles(
            cluster=authority.cluster,
            certificate=certificate.decode(),
            trusted=authority.trusted.decode(),
            files=collect_files(self.home, peer.role, self.address, asked.name, host_id),
            instances=str(self.home.instances.resolve()) if is_control and is_here else "",
        )

    def _check_control(self, *, is_same_machine: bool) -> None:
        """Raise TerminalError where a control that joins could not lead."""
        why = explain_unable(load_config(self.home), is_same_machine=is_same_machine)
        if why is None and not self.home.root_key.exists():
            why = f"{self.home.root_key} is missing on the leader's host: start that again, which "
            why += "makes it, or restore it where keys have been made with it"
        if why is not None:
            raise TerminalError(why)

    def _take_name(self, name: str, host: JoinedHost) -> None:
        """Give the name to `host`. Raises as `check_name`, and Conflict."""
        hosts = Records(self.store, HOST_KIND, JoinedHost)
        found = hosts.get(self.owner, name)
        check_name(name, None if found is None else found.value, host, self.live())
        hosts.put(self.owner, name, host, expect=None if found is None else found.version)

    def _authority(self) -> Authority | None:
        try:
            data = TlsFolder(self.home.tls).authority.read_bytes()
        except FileNotFoundError:
            return None
        return Authority.parse(data).settle(self.clock.now())

    def _forget_old(self, now: float) -> None:
        old: list[tuple[str, Versioned[TokenRecord]]] = []
        for record in self.store.list(KIND, self.owner):
            kept = decode(record.body, TokenRecord)
            if kept.expires_at + KEPT_S < now:
                old.append((record.key.name, Versioned(kept, record.version)))
        for name, it in old:
            self._tokens.delete(self.owner, name, expect=it.version)


def collect_files(
    home: Home, role: PeerRole, control: str, host_name: str, host_id: str
) -> dict[str, str]:
    """The files that a host of `role` needs. Only role control gets the root keys.

    A gateway or an agent gets no store's address, whose password opens the state of all. An agent
    gets the keys of agents, and no web addresses of actions.
    """
    config: dict[str, Any] = decode(home.config.read_bytes(), dict[str, Any])
    for own in ("cluster_host", "cluster_port", "peer_port", "peer_address"):
        config.pop(own, None)
    for own in ("tls_ca", "tls_cert", "tls_key", "controls"):
        config.pop(own, None)
    config |= {"host_name": host_name, "host_id": host_id}
    if role is PeerRole.CONTROL:
        config |= {"gateway_workers": 0, "mirror_process": False, "console_port": 0}
    else:
        for own in ("store_url", "copy_user"):
            config.pop(own, None)
        config["controls"] = [control]
        config["first_s3_url"] = get_s3_url(load_config(home), control)
    keys = load_credentials(home)
    if role is PeerRole.AGENT:
        keys = keys.for_agent(has_own_s3=load_config(home).has_own_s3)
    found = {
        "config.json": msgspec.json.encode(config),
        "credentials.json": msgspec.json.encode(keys),
    }
    optional = [home.images] if role is PeerRole.AGENT else [home.images, home.actions]
    if role is PeerRole.CONTROL:
        optional += [home.root_key, TlsFolder(home.tls).authority]
        found[home.known_controls.name] = msgspec.json.encode([control])
    for path in optional:
        if path.exists():
            found[str(path.relative_to(home.root))] = path.read_bytes()
    return {name: base64.b64encode(data).decode() for name, data in found.items()}


def get_s3_url(config: UpConfig, control: str) -> str:
    """The embedded object store, as other hosts' programs reach it. Empty without one.

    If it listens on every address, the address is `control`.
    """
    if not config.has_own_s3:
        return ""
    is_everywhere = config.host in ("0.0.0.0", "::")
    host = Address.parse(control).host if is_everywhere else config.host
    return replace(config, host=host).client_s3_url


def get_fingerprint(authority: Authority) -> str:
    """The fingerprint by which a joining host knows the cluster."""
    return read_facts(authority.current.certificate.encode()).fingerprint


def build_proof(authority: Authority, body: bytes) -> str:
    """The proof that a request comes from who can read the authority's key."""
    return hmac.new(authority.current.key.encode(), body, hashlib.sha256).hexdigest()


def _refuse(status: int, reason: str) -> Response:
    return JsonResponse({"reason": reason}, status_code=status)
