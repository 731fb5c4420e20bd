"""The node proxy of one instance on a Ray node, which the instance's actor manages.

The actor holds the sockets of its links, so that their ports stay, and clients wait, while the
process is started again.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from hostelry.base.address import Address
from hostelry.base.clock import monotonic_s
from hostelry.base.errors import RetryableError
from hostelry.base.files import write_whole
from hostelry.base.json import decode
from hostelry.base.proc import ProcessIdentity
from hostelry.fleet.host.processes import identify, is_alive, reap, send
from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.fleet.ray.node_home import NodeHome

START_S = 30.0
ANSWER_S = 5.0
END_S = 2.0  # for the last bytes of copies that have ended
POLL_S = 0.05
LOG_LINES = 10
LINK_HOST = "127.0.0.1"
SERVICE_VARIABLE = "HOSTELRY_SERVICE"  # as in `home/home.py`: it echoes lines on NAME.sock


class InstanceProxy:
    """A child process, started again on the same port if it dies or hangs.

    Args:
        home: the instance's home, with the proxy's files.
        command: its command line. Options that differ between starts are appended.
        host: the address of the node, on which it listens.
        environment: the variables of the process.
        links: names of servers of control's host to which it leads.
    """

    def __init__(
        self,
        home: NodeHome,
        command: Sequence[str],
        host: str,
        environment: Mapping[str, str],
        links: Iterable[str] = (),
    ) -> None:
        self._home = home
        self._command = tuple(command)
        self._host = host
        service = {SERVICE_VARIABLE: str(home.root / "proxy")}
        self._environment = dict(environment) | service
        self._links = {it: socket.create_server((LINK_HOST, 0)) for it in links}
        self._port = 0
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process lives."""
        return self._child is not None and self._child.returncode is None

    @property
    def link_ports(self) -> dict[str, int]:
        """The loopback ports that lead to servers of control's host, by the servers' names."""
        return {name: it.getsockname()[1] for name, it in self._links.items()}

    def close(self) -> None:
        """Close the links' sockets."""
        for link in self._links.values():
            link.close()

    def address(self, instance_id: str) -> str:
        """The agent's address behind the proxy, for all hosts of the cluster."""
        return str(Address("https", self._host, self._port, instance_id))

    async def launch(self) -> None:
        """Start the proxy if it is dead or hung. Returns once it answers. Raises RetryableError."""
        if not (self.is_running and self._port and await self._answers()):
            await asyncio.to_thread(end_proxy, self._home)
            self._spawn()
            await self._await_ready()

    def _spawn(self) -> None:
        self._port_file.unlink(missing_ok=True)
        log = self._home.root / "proxy.log"
        CopyLog(log).bound()
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        asked = ["--host", self._host, "--port", str(self._port)]
        asked += [f"--link={name}={it.fileno()}" for name, it in self._links.items()]
        try:
            child = self._child = subprocess.Popen(
                [*self._command, *asked, "--port-file", str(self._port_file)],
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=subprocess.STDOUT,
                env=self._environment,
                pass_fds=[it.fileno() for it in self._links.values()],
                start_new_session=True,
            )
        except OSError as error:
            raise RetryableError(f"cannot start {self._command[0]}: {error}") from error
        finally:
            os.close(descriptor)
        if (identity := identify(child.pid)) is not None:
            write_whole(self._home.proxy, msgspec.json.encode(identity), durable=False)
        reap(child)

    async def _await_ready(self) -> None:
        deadline = monotonic_s() + START_S
        while self.is_running and monotonic_s() < deadline:
            with contextlib.suppress(OSError, ValueError):
                self._port = int(self._port_file.read_bytes())
                if await self._answers():
                    return
            await asyncio.sleep(POLL_S)
        ended = not self.is_running
        if ended:
            self._port = 0  # it may be in use by now, so the next start takes any port
        tail = CopyLog(self._home.root / "proxy.log").tail(LOG_LINES)
        raise RetryableError(
            f"the node proxy on {self._host} {'ended' if ended else 'does not answer'}: {tail}"
        )

    @property
    def _port_file(self) -> Path:
        return self._home.root / "proxy.port"

    async def _answers(self) -> bool:
        """Whether its event loop runs and so echoes a line."""
        folder = os.open(self._home.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        name = f"/proc/self/fd/{folder}/proxy.sock"  # a socket's path must be short
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(name)
                with contextlib.closing(writer):
                    writer.write(b"1\n")
                    return await reader.readline() == b"1\n"
        except (OSError, TimeoutError):
            return False
        finally:
            os.close(folder)


def end_proxy(home: NodeHome) -> None:
    """End the proxy of a home, by KILL after `END_S`, and wait for it. Blocks. Idempotent."""
    try:
        process = decode(home.proxy.read_bytes(), ProcessIdentity)
    except (OSError, msgspec.DecodeError):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        send([process], number)
        deadline = monotonic_s() + END_S
        while is_alive(process) and monotonic_s() < deadline:
            time.sleep(POLL_S)
