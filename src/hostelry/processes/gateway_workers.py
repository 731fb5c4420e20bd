"""Services of the gateway's workers, which share one socket and one table of counts.

`up` binds the socket and its workers inherit it. While a worker is dead or hung, no connection is
refused. The other workers accept it. Without any worker it waits in the socket's backlog.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress

from hostelry.dataplane.shared.count_table import CountTable
from hostelry.dataplane.shared.mapped_file import LockedError
from hostelry.dataplane.shared.quota_table import clear_worker
from hostelry.home.home import Home, UpConfig
from hostelry.home.quota_files import get_quota_files
from hostelry.home.run_file import gateway_name
from hostelry.http1.heads import build_answer
from hostelry.processes.supervision import GATEWAY_LIVENESS
from hostelry.processes.supervisor import Command, ServiceSpec

LOG = logging.getLogger(__name__)
STARTING = b"the gateway is starting"
# For calls of KMS. With another status the object store's client repeats the call for 5 s.
KMS_TARGET, KMS_STATUS = b"TrentService.", 400
OTHER_STATUS = 503
REFUSAL_S = 5.0
READ_BYTES = 65_536


class SharedListener:
    """The listening socket and the workers' counts. Without `table` each worker has its own."""

    def __init__(
        self, config: UpConfig, listening: socket.socket, table: CountTable | None
    ) -> None:
        self._config = config
        self._listening = listening
        self._table = table

    def list_workers(
        self, home: Home, env: Mapping[str, str], digest: str = ""
    ) -> list[ServiceSpec]:
        """One service per worker."""
        return [
            self._service(home, env, digest, number)
            for number in range(1, self._config.gateway_workers + 1)
        ]

    def why_not_ready(self) -> str | None:
        """The workers that do not accept connections yet, in words, or None if all do."""
        if self._table is None:
            return None
        presences = self._table.presences()
        absent = [f"gateway-{n}" for n, (_, at_ns) in enumerate(presences, start=1) if not at_ns]
        return f"{', '.join(absent)} did not start" if absent else None

    async def refuse_early(self) -> None:
        """Refuse requests that no worker has accepted yet, until cancelled.

        Without an answer the object store, which asks KMS here as it starts, would wait for the
        gateway and control to start, 40 s at most.
        """
        loop, answering = asyncio.get_running_loop(), set[asyncio.Task[None]]()
        while True:
            client, _ = await loop.sock_accept(self._listening)
            task = asyncio.create_task(refuse(client))
            answering.add(task)
            task.add_done_callback(answering.discard)

    def shut(self) -> None:
        """Close the socket, so that connections are refused once the workers end. Idempotent."""
        self._listening.close()

    def clear_all_but(self, numbers: Collection[int]) -> None:
        """Clear the counts of all other workers, which are dead."""
        for number in range(1, self._config.gateway_workers + 1):
            if number not in numbers:
                self._clear(number)

    def _service(self, home: Home, env: Mapping[str, str], digest: str, number: int) -> ServiceSpec:
        listen_fd = self._listening.fileno()
        argv = [sys.executable, "-m", "hostelry.services.gateway", "--home", str(home.root)]
        argv += ["--worker", str(number), "--listen-fd", str(listen_fd)]
        return ServiceSpec(
            name=gateway_name(number),
            module=argv[2],
            command=lambda: Command(argv=argv, env=env, pass_fds=(listen_fd,)),
            after=lambda: self._end_worker(home, number),
            digest=digest,
            port=self._config.gateway_port,
            liveness=GATEWAY_LIVENESS,
        )

    def _end_worker(self, home: Home, number: int) -> None:
        """End the counts and the holds of a dead worker's requests."""
        self._clear(number)
        clear_worker(get_quota_files(home).windows, number - 1, self._config.gateway_workers)

    def _clear(self, number: int) -> None:
        """Clear a dead worker's counts, which would mislead the load balancing of its peers."""
        if self._table is not None and number <= self._table.num_workers:
            self._table.clear(number - 1)


async def refuse(client: socket.socket) -> None:
    """Answer one client that the gateway is starting, and close after the client does."""
    loop = asyncio.get_running_loop()
    client.setblocking(False)
    with client, suppress(OSError, TimeoutError):
        async with asyncio.timeout(REFUSAL_S):
            head = await loop.sock_recv(client, READ_BYTES)
            await loop.sock_sendall(client, build_refusal(is_kms=KMS_TARGET in head))
            client.shutdown(socket.SHUT_WR)
            while await loop.sock_recv(client, READ_BYTES):
                pass


def build_refusal(*, is_kms: bool) -> bytes:
    """The answer to a request that no worker has accepted."""
    kind = b"KMSInvalidStateException" if is_kms else b"ServiceUnavailable"
    body = b'{"__type": "%s", "message": "%s"}' % (kind, STARTING)
    headers = {"Connection": "close", "Content-Type": "application/x-amz-json-1.1"}
    return build_answer(KMS_STATUS if is_kms else OTHER_STATUS, headers, body)


@contextmanager
def shared_listener(
    home: Home, config: UpConfig, listening: socket.socket, adopted: Collection[int] = ()
) -> Iterator[SharedListener]:
    """The listener of one `up`, closed at the end of the block.

    `adopted` are the numbers of the adopted workers. The counts of all other workers are cleared.
    """
    with listening:
        table = open_table(home, config) if adopted else new_table(home, config)
        try:
            listener = SharedListener(config, listening, table)
            listener.clear_all_but(adopted)
            yield listener
        finally:
            if table is not None:
                table.close()


def new_table(home: Home, config: UpConfig) -> CountTable | None:
    """An empty table of counts. None for a single worker, or if it cannot be created."""
    home.counts.unlink(missing_ok=True)
    return open_table(home, config)


def open_table(home: Home, config: UpConfig) -> CountTable | None:
    """The table that the workers share. None for a single worker, or if it cannot be opened.

    If there may be gateways on other hosts, a single worker has a table, too.
    """
    if config.gateway_workers == 1 and not config.peer_port:
        return None
    try:
        has_others = config.peer_port != 0
        return CountTable(home.counts, config.gateway_workers, has_others=has_others)
    except (OSError, LockedError) as error:
        LOG.warning(
            "%s cannot be opened (%s): each gateway worker counts its own requests only",
            home.counts,
            error,
        )
        return None
