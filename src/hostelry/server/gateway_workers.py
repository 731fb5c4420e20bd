"""The gateway's workers as `up` keeps them: one socket, one table of counts, several processes.

`up` binds the door and its workers inherit it. A worker that is dead or hung refuses nobody: the
others take what comes, and where none is left connections wait until one is back.
"""

import logging
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from hostelry.gateway.shared.count_table import CountTable
from hostelry.gateway.shared.mapped_file import LockedError
from hostelry.server.home import Home, UpConfig
from hostelry.server.run_file import gateway_name
from hostelry.server.supervision import DOOR_LIVENESS
from hostelry.server.supervisor import Command, Service

log = logging.getLogger(__name__)


class SharedDoor:
    """The listening socket, and the workers' counts; `table` None where each counts alone."""

    def __init__(
        self, config: UpConfig, listening: socket.socket, table: CountTable | None
    ) -> None:
        self._config = config
        self._listening = listening
        self._table = table

    def services(self, home: Home, env: Mapping[str, str], digest: str = "") -> list[Service]:
        """One service a worker."""
        return [
            self._service(home, env, digest, number)
            for number in range(1, self._config.gateway_workers + 1)
        ]

    def why_not_ready(self) -> str | None:
        """Which workers have not begun to accept connections; None where all have."""
        if self._table is None:
            return None
        presences = self._table.presences()
        absent = [f"gateway-{n}" for n, (_, at_ns) in enumerate(presences, start=1) if not at_ns]
        return f"{', '.join(absent)} did not begin" if absent else None

    def shut(self) -> None:
        """Refuse new connections once the workers accept no more; a second call does nothing."""
        self._listening.close()

    def forget_all_but(self, numbers: Collection[int]) -> None:
        """Count nothing for workers other than these, which are dead."""
        for number in range(1, self._config.gateway_workers + 1):
            if number not in numbers:
                self._ended(number)

    def _service(self, home: Home, env: Mapping[str, str], digest: str, number: int) -> Service:
        door_fd = self._listening.fileno()
        argv = [sys.executable, "-m", "hostelry.server.gateway", "--home", str(home.root)]
        argv += ["--worker", str(number), "--listen-fd", str(door_fd)]
        return Service(
            name=gateway_name(number),
            command=lambda: Command(argv=argv, env=env, pass_fds=(door_fd,)),
            after=lambda: self._ended(number),
            digest=digest,
            port=self._config.door_port,
            liveness=DOOR_LIVENESS,
        )

    def _ended(self, number: int) -> None:
        """Requests of a dead worker are over, and must not steer those of the others."""
        if self._table is not None and number <= self._table.num_workers:
            self._table.clear(number - 1)


@contextmanager
def shared_door(
    home: Home, config: UpConfig, listening: socket.socket, adopted: Collection[int] = ()
) -> Iterator[SharedDoor]:
    """The door of one `up`, whose socket listens already.

    `adopted` are the numbers of the workers that go on; what others had counted is forgotten.
    """
    with listening:
        table = open_table(home, config) if adopted else new_table(home, config)
        try:
            door = SharedDoor(config, listening, table)
            door.forget_all_but(adopted)
            yield door
        finally:
            if table is not None:
                table.close()


def new_table(home: Home, config: UpConfig) -> CountTable | None:
    """An empty table of counts for this `up`; None for one worker, or where none can be made."""
    home.counts.unlink(missing_ok=True)
    return open_table(home, config)


def open_table(home: Home, config: UpConfig) -> CountTable | None:
    """The table that the workers share; None for one worker, or where it cannot be had."""
    if config.gateway_workers == 1:
        return None
    try:
        return CountTable(home.counts, config.gateway_workers)
    except (OSError, LockedError) as error:
        log.warning(
            "%s cannot be had (%s): each gateway worker counts its own requests only",
            home.counts,
            error,
        )
        return None
