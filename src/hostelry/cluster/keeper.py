"""The keeper of a host's certificates: renews them in time, and follows the authority's rotation.

host                                    its certificate comes from
-------------------------------------   ---------------------------------------------------------
with the operator's own files           these, when they change
with the authority (role control)       the authority. A newer one of another control is taken over
any other                               a control, which is asked over the certificate still valid
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

import httpx
import msgspec

from hostelry.base.address import on_host
from hostelry.base.certificates import new_key, read_facts, signing_request
from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError, RetryableError, TerminalError
from hostelry.base.json import decode
from hostelry.base.peer_http import peer_client
from hostelry.base.peers import PeerName, PeerRole
from hostelry.base.tls import CERTIFICATES
from hostelry.cluster.authority import Authority
from hostelry.cluster.host_files import HostFiles, OperatorFiles
from hostelry.cluster.http_front import Answer, FrontRequest

LOG = logging.getLogger(__name__)
PAUSE_S = 300.0
FILES_PAUSE_S = 2.0  # of the operator's files, and of the authority on this host
CALL_S = 10.0


class Renewal(msgspec.Struct, kw_only=True):
    """A peer's request: a certificate for its key's signing request, PEM. Empty: no certificate."""

    request: str = ""


class Renewed(msgspec.Struct, kw_only=True):
    """The certificate, the trusted ones and, for a peer of role control, the authority."""

    certificate: str = ""
    trusted: str
    authority: Authority | None = None


class CertificateKeeper:
    """Keeps `files`. `controls` are the addresses of the controls of other hosts."""

    def __init__(
        self,
        files: HostFiles,
        clock: Clock,
        operator: OperatorFiles | None = None,
        controls: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._files = files
        self._clock = clock
        self._operator = operator
        self._controls = controls
        self._fault = ""

    async def run(self) -> None:
        """Look every few seconds at this host's files, and every few minutes at the controls."""
        asked_at = float("-inf")
        while True:
            now = self._clock.now()
            try:
                if self._operator is not None:
                    await asyncio.to_thread(self._files.take, self._operator, now)
                else:
                    await asyncio.to_thread(self.settle, now)
                    if now - asked_at >= PAUSE_S:
                        await self.ask(now)
                        asked_at = now
                self._fault = ""
            except (HostelryError, OSError) as error:
                if str(error) != self._fault:
                    LOG.warning("the certificates are not renewed: %s", error)
                self._fault = str(error)
                asked_at = min(asked_at, now - PAUSE_S + 10 * FILES_PAUSE_S)
            await self._clock.sleep(FILES_PAUSE_S)

    def settle(self, now: float) -> None:
        """On a host with the authority: advance its rotation, and renew due certificates."""
        stored = self._files.authority()
        if stored is None:
            return
        authority = stored.settle(now)
        if authority != stored:
            self._files.save_authority(authority)
        if self._files.is_due(authority, now):
            own = self._own()
            self._files.issue_own(authority, own.role, own.name, now)
        elif self._files.folder.trusted.read_bytes() != authority.trusted:
            self._files.save(self._files.folder.identity.read_bytes(), authority.trusted)

    async def ask(self, now: float) -> None:
        """Ask the other hosts' controls for the trusted certificates, and for a due one.

        Raises RetryableError if none answers a host that depends on them.
        """
        stored = self._files.authority()
        faults = []
        for control in self._controls():
            key = new_key() if stored is None and self._files.is_due(None, now) else None
            try:
                answer = await self._ask_control(control, key)
            except RetryableError as error:
                faults.append(str(error))
                continue
            if stored is not None:
                if answer.authority is not None and answer.authority.version > stored.version:
                    self._files.save_authority(answer.authority)
                continue
            identity = self._files.folder.identity.read_bytes()
            if key is not None and answer.certificate:
                identity = key + answer.certificate.encode()
            self._files.save(identity, answer.trusted.encode())
            first = answer.trusted.encode()
            if key is None and read_facts(identity).issuer != read_facts(first).subject:
                await self._renew(control)
            return
        if faults and stored is None:
            raise RetryableError("; ".join(faults))

    async def _renew(self, control: str) -> None:
        """Another authority signs now: have its certificate before the old one's is refused."""
        key = new_key()
        answer = await self._ask_control(control, key)
        self._files.save(key + answer.certificate.encode(), answer.trusted.encode())

    async def _ask_control(self, control: str, key: bytes | None) -> Renewed:
        request = "" if key is None else signing_request(key).decode()
        try:
            async with peer_client(on_host(control, CERTIFICATES)) as http:
                body = msgspec.json.encode(Renewal(request=request))
                answer = await http.post("/", content=body, timeout=CALL_S)
            if answer.status_code != 200:
                raise RetryableError(f"{control}: {answer.status_code} {answer.text[:200]}")
            return decode(answer.content, Renewed)
        except (httpx.HTTPError, msgspec.DecodeError, TerminalError) as error:
            raise RetryableError(f"{control}: {error or type(error).__name__}") from error

    def _own(self) -> PeerName:
        return PeerName.find_in(read_facts(self._files.folder.identity.read_bytes()).uris)


class CertificateDesk:
    """Answers peers that renew their certificates, on a host with the authority."""

    def __init__(self, files: HostFiles, clock: Clock) -> None:
        self._files = files
        self._clock = clock

    async def answer(self, request: FrontRequest) -> Answer:
        """A certificate in the name of the peer's present one, and the trusted certificates."""
        return await asyncio.to_thread(self._answer, request)

    def _answer(self, request: FrontRequest) -> Answer:
        stored = self._files.authority()
        if stored is None or request.peer is None:
            return 404, b'"this host issues no certificates"'
        now = self._clock.now()
        authority = stored.settle(now)
        try:
            asked = decode(request.body, Renewal)
            certificate = (
                authority.sign(asked.request.encode(), request.peer, now) if asked.request else b""
            )
        except (msgspec.DecodeError, ValueError) as error:
            return 400, msgspec.json.encode(str(error))
        is_control = request.peer.role is PeerRole.CONTROL
        return 200, msgspec.json.encode(
            Renewed(
                certificate=certificate.decode(),
                trusted=authority.trusted.decode(),
                authority=stored if is_control else None,
            )
        )
