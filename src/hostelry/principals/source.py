"""Sources of principals for gateways and the S3 port: control and a file, or fixed."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec

from hostelry.aws.access_keys import AccessKeySecrets
from hostelry.aws.sigv4 import Secret
from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.base.files import write_whole
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest
from hostelry.base.json import decode
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream
from hostelry.principals.caller import Principals
from hostelry.principals.table import PrincipalTable

LOG = logging.getLogger(__name__)
PATH = "/internal/principals"
MAX_TABLE_BYTES = 256 * 1024 * 1024
# Control answers within 20 s when nothing changes.
POLL_TIMEOUTS = Timeouts(total_s=30.0, connect_s=2.0)
RETRY_S = 0.25
TRUSTED_S = 12 * 3600.0  # as long as a session of a role lasts at most


class PrincipalSource(Protocol):
    """The newest principals. Newer ones follow as control publishes them."""

    @property
    def principals(self) -> Principals:
        """The newest principals. A request reads them once, and keeps them."""
        ...

    @property
    def is_trusted(self) -> bool:
        """False if control has not answered for so long that keys may have been revoked."""
        ...


class FixedPrincipals:
    """Principals that never change."""

    def __init__(self, principals: Principals) -> None:
        self.principals = principals
        self.is_trusted = True


def no_principals(owner: str) -> FixedPrincipals:
    """The principals of a platform whose first account's root is alone."""
    return FixedPrincipals(Principals(PrincipalTable(), owner))


class TableError(HostelryError):
    """The bytes are not a table of principals."""


class PublishedPrincipals:
    """Principals as control publishes them. Until control answers, the table on disk is used.

    The time of the file is the time of control's last answer. After `TRUSTED_S` without control the
    principals are not trusted any more.

    Args:
        pool: connections to control.
        address: control's ``http://host:port``.
        internal_key: the key of calls between the platform's processes.
        owner: the platform's first account.
        path: the file, which the processes of a host replace whole.
    """

    def __init__(
        self,
        pool: Upstream,
        address: str,
        internal_key: str,
        owner: str,
        path: Path,
        clock: Clock,
    ) -> None:
        self._pool = pool
        self._address = address
        self._headers = {INTERNAL_KEY_HEADER: internal_key}
        self._owner = owner
        self._path = path
        self._clock = clock
        table, self._answered_at = _load(path)
        self._principals = Principals(table, owner)
        self._is_connected = True

    @property
    def principals(self) -> Principals:
        """The newest principals."""
        return self._principals

    @property
    def is_trusted(self) -> bool:
        """Whether control has answered within `TRUSTED_S`."""
        return self._clock.now() - self._answered_at < TRUSTED_S

    async def follow(self) -> None:
        """Poll control, and keep the table on disk, until cancelled."""
        while True:
            try:
                table = await self._poll()
            except (UpstreamError, TableError) as error:
                self._note_connection(connected=False, reason=str(error))
                await self._clock.sleep(RETRY_S)
                continue
            self._note_connection(connected=True, reason="")
            self._answered_at = self._clock.now()
            if table is not None:
                self._principals = Principals(table, self._owner)
            await asyncio.to_thread(self._keep, table)

    async def _poll(self) -> PrincipalTable | None:
        """Ask control for a newer table. None if it is unchanged."""
        have = quote(self._principals.table.version, safe="")
        asked = HttpRequest("GET", PATH, f"have={have}", self._headers)
        reply = await call(self._pool, self._address, asked, POLL_TIMEOUTS, MAX_TABLE_BYTES)
        if reply.status == 304:
            return None
        if reply.status != 200:
            raise TableError(f"control answered {reply.status}: {reply.body[:200]!r}")
        return _decode(reply.body)

    def _keep(self, table: PrincipalTable | None) -> None:
        try:
            if table is None:
                os.utime(self._path)
            else:
                write_whole(self._path, msgspec.json.encode(table))
        except OSError as error:
            LOG.warning("the principals could not be kept on disk: %s", error)

    def _note_connection(self, *, connected: bool, reason: str) -> None:
        if connected == self._is_connected:
            return
        self._is_connected = connected
        if connected:
            LOG.info("principals follow control again")
        else:
            LOG.warning("control does not answer; the last principals stay in use (%s)", reason)


def _load(path: Path) -> tuple[PrincipalTable, float]:
    """The table on disk, and the time of control's last answer. Empty without a file."""
    with contextlib.suppress(OSError, TableError):
        return _decode(path.read_bytes()), path.stat().st_mtime
    return PrincipalTable(), 0.0


def _decode(body: bytes) -> PrincipalTable:
    try:
        return decode(body, PrincipalTable)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TableError(f"no table of principals: {error}") from error


def build_key_lookup(
    source: PrincipalSource, own: dict[str, Secret], secrets: AccessKeySecrets
) -> Callable[[str], Secret | None]:
    """A function from access key ids to their secrets. None for keys that are not active.

    `own` are the keys of the platform's first account. A key's secret is derived once for each
    table, and not for unknown ids.
    """
    derived: dict[str, Secret] = {}
    of: Principals | None = None

    def find(access_key_id: str) -> Secret | None:
        nonlocal of
        first = own.get(access_key_id)
        if first is not None:
            return first
        principals = source.principals
        if principals is not of:
            derived.clear()
            of = principals
        known = derived.get(access_key_id)
        row = principals.table.access_keys.get(access_key_id)
        if known is not None or row is None:
            return known
        found = Secret(
            secret_access_key=secrets.derive(access_key_id),
            account_id=row.account,
            user=row.user_name,
        )
        derived[access_key_id] = found
        return found

    return find
