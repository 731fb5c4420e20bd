"""The S3 proxy: the S3 port, in front of the object store, which is on loopback.

Requests pass unchanged, body and answer uncopied by any rule, so that signatures stay valid. Three
kinds are changed, and signed again with the store's own key once the client's signature holds:

- one that leaves the KMS key open gets the key that AWS would take, ``alias/aws/s3``;
- a multipart upload into a bucket whose default is KMS gets that default;
- one signed with temporary keys, which the store does not know.

A key that cannot be used is refused here in S3's words: the store would answer 500.

Notification configurations of buckets are answered here (`watch.py`). The answer to a write into a
bucket that has one is held until its event is on disk (`object_events.py`).
Run as ``python -m hostelry.s3.proxy --home DIR --target PORT``.
"""

import argparse
import asyncio
import contextlib
import logging
import resource
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from hostelry.base.clock import SystemClock
from hostelry.base.concurrency import run_again
from hostelry.base.errors import TerminalError
from hostelry.base.https import ServerCertificate
from hostelry.base.ids import new_request_id
from hostelry.base.logging import configure_logging
from hostelry.cluster.control_access import (
    control_access,
    control_mounts,
    published_principals,
)
from hostelry.dataplane.http.connection_limits import (
    ConnectionLimitError,
    ConnectionLimits,
    find_client,
)
from hostelry.domain.object_event import BucketNotification
from hostelry.home.heartbeat import answer_heartbeats
from hostelry.home.home import Home, load_config, load_credentials, log_format
from hostelry.home.https_option import find_certificate
from hostelry.http1.heads import MalformedHeadError
from hostelry.http1.upstream import UpstreamPool
from hostelry.processes.jumpstart import catalogue_bucket
from hostelry.s3.admission import S3Refusal, error_answer
from hostelry.s3.answers import CHUNK_BYTES, Answers, PassedRequest, Settle, StoreAnswer
from hostelry.s3.bucket_calls import BucketCalls
from hostelry.s3.event_file import EventFile
from hostelry.s3.head import END, MAX_HEAD_BYTES, Head, parse_head
from hostelry.s3.listener import SecuredListener, Served, listened
from hostelry.s3.object_events import EventSender, control_reporter, is_notification_call
from hostelry.s3.object_keys import Guard, KmsKeys, ObjectKeys
from hostelry.s3.passage import Passage, Passes, own_key
from hostelry.s3.permits import ObjectPermits
from hostelry.s3.store_client import StoreClient
from hostelry.s3.watch import MAX_BODY_BYTES, Watch

TARGET_HOST = "127.0.0.1"
IDLE_S = 150.0  # longer than the store's limit, so that the store decides
DRAINED_S = 5.0
BODY_S = 20.0  # to read the configuration of a bucket's notifications
RETRY_S = 1.0
MAX_CONNECTIONS = 4096
RESERVED_FILES = 256  # for all other purposes than connections, each of which takes two
LOG = logging.getLogger(__name__)


class Answerer(Protocol):
    """Answers some calls in the store's place."""

    async def answer(
        self, head: Head, source_ip: str, read_body: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """The bytes of an answer. Reads the body only from a permitted client. Raises S3Refusal."""
        ...


class Connection:
    """A client's connection and the store's connection that serves it (`LimitedConnection`)."""

    can_be_shed = False
    reading_since_s = 0.0

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        store: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        passes: Passes,
        watch: Watch | None,
        buckets: BucketCalls | None,
        limits: "ConnectionLimits[Connection]",
    ) -> None:
        self.is_verified, self.held_bytes = False, 0
        self._reader, self._writer = client
        self.address = find_client(self._source_address())
        answers, self._requests = store
        self._proven: Callable[[], None] = lambda: limits.note_verified(self)
        self._answers = Answers(answers, self._writer, self._proven)
        self._passes = passes
        self._watch = watch
        self._buckets = buckets

    def abort(self) -> None:
        """Cut the connection."""
        self._writer.transport.abort()

    async def serve(self) -> None:
        """Pass requests and answers until either side ends."""
        sending = asyncio.create_task(self._pass_requests())
        try:
            # A client may half-close and still read. When the store ends, both directions end.
            await self._answers.pass_all()
            if sending.done() or not self._requests.is_closing():
                sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending
        finally:
            sending.cancel()
            self._requests.close()
            self._writer.close()

    async def _pass_requests(self) -> None:
        try:
            while await self._pass_request():
                pass
            if self._requests.can_write_eof() and not self._requests.is_closing():
                self._requests.write_eof()
        except (OSError, asyncio.IncompleteReadError):
            self._requests.close()

    async def _pass_request(self) -> bool:
        """Pass one request. Returns False after the last request of the connection."""
        head: Head | None = None
        try:
            raw = await self._next_head()
            if raw is None:
                return False
            head = parse_head(raw)
            if self._watch is not None and is_notification_call(head):
                await self._answer(self._watch, head)
                return True
            if self._buckets is not None and self._buckets.answers(head):
                await self._answer(self._buckets, head)
                return True
            source = self._source_address()
            passed = await self._passes(head, source, lambda: self._read_body(head))
        except MalformedHeadError as error:
            await self._refuse(head, S3Refusal(400, "BadRequest", f"Malformed HTTP: {error}."))
            return False
        except S3Refusal as refusal:
            await self._refuse(head, refusal)
            return False
        except (OSError, asyncio.IncompleteReadError):
            raise
        except Exception:  # a defect: without an answer, the client would wait in vain
            LOG.exception("a request to the S3 port failed")
            await self._refuse(head, S3Refusal(500, "InternalError", "Internal error; try again."))
            return False
        watch = self._watch
        settle = None if watch is None else watch.settle_of(head, self._source_address())
        guard = None if passed.guard is None else answering(passed.guard, head)
        self._answers.note(PassedRequest(head=head, settle=settle, guard=guard))
        self._requests.write(passed.raw + (passed.body or b""))
        if passed.body is not None:
            return True
        if head.body_bytes is None:  # the store reads to the end of a chunked body, and closes
            await copy_bytes(self._reader, self._requests)
            return False
        await copy_exactly(self._reader, self._requests, head.body_bytes)
        return True

    async def _answer(self, answerer: Answerer, head: Head) -> None:
        """Answer a call in the store's place. Raises S3Refusal."""
        source = self._source_address()
        self._writer.write(await answerer.answer(head, source, lambda: self._read_body(head)))
        await self._writer.drain()

    async def _read_body(self, head: Head) -> bytes:
        """Read the body of such a call, whose signature is valid. Raises S3Refusal."""
        self._proven()
        length = head.body_bytes
        if length is None:
            raise S3Refusal(411, "MissingContentLength", "The request needs a Content-Length.")
        if length > MAX_BODY_BYTES:
            message = f"The configuration is longer than {MAX_BODY_BYTES} bytes."
            raise S3Refusal(413, "EntityTooLarge", message)
        await self._answers.all_passed()
        if head.values.get("expect", "").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            async with asyncio.timeout(BODY_S):
                return await self._reader.readexactly(length)
        except TimeoutError:
            message = f"The configuration did not arrive within {BODY_S:g} s."
            raise S3Refusal(400, "RequestTimeout", message) from None

    def _source_address(self) -> str:
        peer = self._writer.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    async def _next_head(self) -> bytes | None:
        """Read the next request's head. None if the client has ended, or sends none in time."""
        try:
            async with asyncio.timeout(IDLE_S):
                return await self._reader.readuntil(END)
        except asyncio.IncompleteReadError as ended:
            if ended.partial.strip(b"\r\n"):
                raise MalformedHeadError("the head is cut off") from None
            return None
        except asyncio.LimitOverrunError:
            raise MalformedHeadError(f"the head is longer than {MAX_HEAD_BYTES} bytes") from None
        except TimeoutError:
            return None

    async def _refuse(self, head: Head | None, refusal: S3Refusal) -> None:
        """Answer in the store's place, read the rest of the request, and end the connection."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAINED_S):
                await self._answers.all_passed()
        has_body = head is None or head.method != "HEAD"
        self._writer.write(error_answer(refusal, new_request_id(), has_body=has_body))
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(DRAINED_S):
                await self._writer.drain()
                if self._writer.can_write_eof():
                    self._writer.write_eof()
                while await self._reader.read(CHUNK_BYTES):
                    pass
        self._requests.close()


def answering(guard: Guard, head: Head) -> Settle:
    """A function that returns the answer of a guard's refusal, if any."""

    async def check(answer: StoreAnswer) -> bytes | None:
        refusal = await guard(answer)
        if refusal is None:
            return None
        return error_answer(refusal, new_request_id(), has_body=head.method != "HEAD")

    return check


async def start_proxy(
    address: tuple[str, int],
    target_port: int,
    passes: Passes,
    watch: Watch | None = None,
    certificate: ServerCertificate | None = None,
    max_connections: int = MAX_CONNECTIONS,
    buckets: BucketCalls | None = None,
) -> asyncio.Server | SecuredListener:
    """Listen on `address` and pass requests to 127.0.0.1:`target_port`."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = max(min(max_connections, (files - RESERVED_FILES) // 2), 1)
    limits: ConnectionLimits[Connection] = ConnectionLimits(most, (most + 1) // 2, 0)
    served = passing(target_port, passes, watch, buckets, limits)
    return await listened(*address, served, certificate)


def passing(
    target_port: int,
    passes: Passes,
    watch: Watch | None,
    buckets: BucketCalls | None,
    limits: ConnectionLimits[Connection],
) -> Served:
    """Build the function that serves a connection by passing its requests to `target_port`."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            store = await asyncio.open_connection(TARGET_HOST, target_port)
        except OSError:
            writer.close()
            return
        connection = Connection((reader, writer), store, passes, watch, buckets, limits)
        try:
            shed = limits.add(connection)
        except ConnectionLimitError as error:
            refusal = S3Refusal(503, "SlowDown", f"{error} Try again in a moment.")
            writer.write(error_answer(refusal, new_request_id(), has_body=True))
            store[1].close()
            writer.close()
            return
        if shed is not None:
            shed.abort()
        try:
            await connection.serve()
        finally:
            limits.remove(connection)

    return connected


async def copy_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until either side ends."""
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        writer.close()


async def copy_exactly(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, num_bytes: int
) -> None:
    """Copy `num_bytes` bytes. Raises IncompleteReadError if the reader ends earlier."""
    left = num_bytes
    while left:
        chunk = await reader.read(min(left, CHUNK_BYTES))
        if not chunk:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(chunk)
        writer.write(chunk)
        await writer.drain()


async def serve(home: Home, target_port: int) -> None:
    """Pass requests until this process is ended, and answer its supervisor."""
    config, credentials, clock = load_config(home), load_credentials(home), SystemClock()
    store = StoreClient(f"http://{TARGET_HOST}:{target_port}", own_key(credentials), clock)
    mounts = control_mounts(home, config, credentials)
    pool = UpstreamPool()
    to_control = control_access(home, config, credentials, pool)(pool)
    principals = published_principals(home, config, credentials, to_control, clock)
    permits = ObjectPermits(
        credentials.account_id,
        principals,
        clock.now,
        frozenset({catalogue_bucket(credentials.region)}),
        is_secure=bool(config.https_cert),
    )
    kms = KmsKeys(config, credentials, principals, mounts)
    keys = ObjectKeys(kms, permits, store)
    passage = Passage(credentials, keys, store, clock, principals, permits)
    file = EventFile(home.object_events)
    buckets = BucketCalls(
        config,
        credentials,
        passage,
        store,
        mounts,
        lambda bucket: file.configure(bucket, BucketNotification()),
    )
    watch = Watch(config, credentials, passage, store, file, clock, mounts)
    report = control_reporter(config, credentials, mounts)
    sender = EventSender(file, watch.events.noted, clock, report)
    address, certificate = (config.host, config.s3_port), find_certificate(config)
    async with await start_proxy(
        address, target_port, passage.passed, watch, certificate, buckets=buckets
    ) as server:
        name = "reporting events to control"
        reporting = asyncio.create_task(run_again(name, sender.run, RETRY_S, clock))
        following = asyncio.create_task(principals.follow())
        heartbeats = asyncio.create_task(answer_heartbeats())
        try:
            await server.serve_forever()
        finally:
            heartbeats.cancel()
            following.cancel()
            reporting.cancel()
            file.close()


def main() -> None:
    """Parse the arguments and run. On failure, exit with code 1 and a line on standard error."""
    parser = argparse.ArgumentParser(prog="python -m hostelry.s3.proxy", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home folder")
    parser.add_argument("--target", type=int, required=True, help="the object store's own port")
    arguments = parser.parse_args()
    home = Home(arguments.home)
    configure_logging("s3door", log_format=log_format(home))
    try:
        asyncio.run(serve(home, arguments.target))
    except (OSError, TerminalError) as error:
        sys.exit(f"the S3 port cannot be served: {error}")


if __name__ == "__main__":
    main()
