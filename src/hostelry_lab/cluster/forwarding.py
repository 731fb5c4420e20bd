"""TCP forwarders that stand for the network between two processes: they can hold or slow it.

On a held connection no byte passes in either direction, and one end does not learn that the other
one has closed, as if packets were lost. The held bytes are delivered when the link is whole again.
Unlike a network, a held forwarder accepts new connections, but returns no bytes on them.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
CHUNK_BYTES = 64 * 1024
LOOPBACK = "127.0.0.1"
MakeSocket = Callable[[], socket.socket]


class NetworkLink:
    """One listening port, whose connections are passed to a target. `NetworkLinks` makes it."""

    def __init__(self, target: tuple[str, int], make: MakeSocket) -> None:
        self._target = target
        self._make = make
        self._held: bytes | None = None  # connections whose first bytes contain it are held
        self._let_go = asyncio.Event()
        self.delay_s = 0.0  # before each piece of an answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on until one of its ends closes it."""
        writers = [writer]
        try:
            head = await reader.read(CHUNK_BYTES)  # the client sends first in all our protocols
            if not head:
                return
            await self._free(head)
            from_target, to_target = await asyncio.open_connection(sock=await self._connected())
            writers.append(to_target)
            to_target.write(head)
            there = asyncio.ensure_future(self._pass(reader, to_target, head, lambda: 0.0))
            back = asyncio.ensure_future(
                self._pass(from_target, writer, head, lambda: self.delay_s)
            )
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
        except OSError:
            return  # the target does not listen, or an end is gone, so the connection ends
        finally:
            for each in writers:
                with contextlib.suppress(OSError):
                    each.close()

    def hold(self, containing: bytes | None) -> None:
        """Hold the connections whose first bytes contain these, or all if they are empty.

        None: deliver the held bytes, and pass on all later ones.
        """
        self._held = containing
        if containing is None:
            self._let_go.set()
        else:
            self._let_go.clear()

    async def _connected(self) -> socket.socket:
        made = self._make()
        try:
            made.setblocking(False)
            await asyncio.get_running_loop().sock_connect(made, self._target)
        except BaseException:
            made.close()
            raise
        return made

    async def _free(self, head: bytes) -> None:
        while self._held is not None and self._held in head:
            await self._let_go.wait()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        head: bytes,
        delay_s: Callable[[], float],
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                await asyncio.sleep(delay_s())
                await self._free(head)
                writer.write(chunk)
                await writer.drain()
        await self._free(head)


class NetworkLinks:
    """Links whose bytes one thread moves. They live as long as `running`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._servers: list[asyncio.Server] = []

    @contextmanager
    def running(self) -> Iterator["NetworkLinks"]:
        """Move bytes while the block runs."""
        thread = threading.Thread(target=self._loop.run_forever, name="network links", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._run(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def add(
        self,
        port: int,
        target: tuple[str, int],
        listen_in: Callable[[MakeSocket], socket.socket] = lambda make: make(),
        connect_in: Callable[[MakeSocket], socket.socket] = lambda make: make(),
    ) -> NetworkLink:
        """Forward `port` to `target`. `listen_in` and `connect_in` make both ends' sockets."""
        listener = listen_in(lambda: socket.create_server((LOOPBACK, port)))

        async def start() -> NetworkLink:
            link = NetworkLink(target, lambda: connect_in(socket.socket))
            self._servers.append(await asyncio.start_server(self._tracked(link), sock=listener))
            return link

        return self._run(start())

    @contextmanager
    def cut(self, *links: NetworkLink, containing: bytes = b"") -> Iterator[None]:
        """Hold these links during the block."""
        self._run(holding(links, containing))
        try:
            yield
        finally:
            self._run(holding(links, None))

    @contextmanager
    def slowed(self, link: NetworkLink, delay_s: float) -> Iterator[None]:
        """Delay each piece of the link's answers during the block."""
        link.delay_s = delay_s
        try:
            yield
        finally:
            link.delay_s = 0.0

    def _tracked(self, link: NetworkLink) -> Callable[..., Coroutine[Any, Any, None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            with contextlib.suppress(asyncio.CancelledError):
                await link.serve(reader, writer)

        return serve

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def holding(links: Iterable[NetworkLink], containing: bytes | None) -> None:
    """Hold the links, or release them, in the thread that moves their bytes."""
    for link in links:
        link.hold(containing)
