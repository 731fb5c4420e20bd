"""The quotas of this gateway, as control publishes them, with a file as fallback."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest
from hostelry.base.json import decode
from hostelry.domain.quota import QuotaDocument
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
PATH = "/internal/quotas"
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
# Control answers within 20 s when nothing changes.
POLL_TIMEOUTS = Timeouts(total_s=30.0, connect_s=2.0)
RETRY_S = 0.25
NO_QUOTAS = QuotaDocument(version="")


class QuotaDocumentError(HostelryError):
    """The bytes are not quotas."""


class QuotaSource(Protocol):
    """The newest quotas."""

    @property
    def document(self) -> QuotaDocument:
        """The newest quotas."""
        ...

    def listen(self, changed: Callable[[QuotaDocument], None]) -> None:
        """Call `changed` now, and whenever there are newer quotas."""
        ...


class FixedQuotas:
    """Quotas that change only when `replace` is called."""

    def __init__(self, document: QuotaDocument = NO_QUOTAS) -> None:
        self.document = document
        self._listeners: list[Callable[[QuotaDocument], None]] = []

    def listen(self, changed: Callable[[QuotaDocument], None]) -> None:
        """Let `replace` call `changed`."""
        self._listeners.append(changed)
        changed(self.document)

    def replace(self, document: QuotaDocument) -> None:
        """Replace the quotas."""
        self.document = document
        for changed in self._listeners:
            changed(document)


class PublishedQuotas(FixedQuotas):
    """Quotas as control publishes them. Until control answers, the quotas on disk hold.

    `write` replaces a file whole or not at all. All workers of a host write the same file.
    """

    def __init__(
        self,
        pool: Upstream,
        address: str,
        internal_key: str,
        path: Path,
        write: Callable[[Path, bytes], None],
        clock: Clock,
    ) -> None:
        super().__init__(load_document(path))
        self._pool = pool
        self._address = address
        self._headers = {INTERNAL_KEY_HEADER: internal_key}
        self._path = path
        self._write = write
        self._clock = clock
        self._is_connected = True

    async def follow(self) -> None:
        """Poll control, and keep the quotas on disk, until cancelled."""
        while True:
            try:
                body = await self._poll()
                document = None if body is None else decode_document(body)
            except (UpstreamError, QuotaDocumentError) as error:
                self._note_connection(is_connected=False, reason=str(error))
                await self._clock.sleep(RETRY_S)
                continue
            self._note_connection(is_connected=True)
            if document is not None and body is not None:
                self.replace(document)
                await asyncio.to_thread(self._save, body)

    async def _poll(self) -> bytes | None:
        """Ask control for newer quotas. None without newer quotas."""
        query = f"have={quote(self.document.version, safe='')}"
        request = HttpRequest("GET", PATH, query, self._headers)
        answer = await call(self._pool, self._address, request, POLL_TIMEOUTS, MAX_DOCUMENT_BYTES)
        if answer.status == 304:
            return None
        if answer.status != 200:
            raise QuotaDocumentError(f"control answered {answer.status}: {answer.body[:200]!r}")
        return answer.body

    def _save(self, body: bytes) -> None:
        try:
            self._write(self._path, body)
        except OSError as error:
            LOG.warning("the quotas could not be kept on disk: %s", error)

    def _note_connection(self, *, is_connected: bool, reason: str = "") -> None:
        if is_connected != self._is_connected:
            self._is_connected = is_connected
            if not is_connected:
                LOG.warning("control does not answer; the last quotas hold (%s)", reason)


def load_document(path: Path) -> QuotaDocument:
    """Load the quotas in a file. None are there if the file is missing or damaged."""
    try:
        return decode_document(path.read_bytes())
    except FileNotFoundError:
        return NO_QUOTAS
    except (OSError, QuotaDocumentError) as error:
        LOG.warning("%s cannot be read (%s); waiting for control's quotas", path, error)
        return NO_QUOTAS


def decode_document(body: bytes) -> QuotaDocument:
    """Decode quotas. Raises QuotaDocumentError."""
    try:
        return decode(body, QuotaDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise QuotaDocumentError(f"no quotas: {error}") from error
