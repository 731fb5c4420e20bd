"""The owner's side of warm starts: an interpreter with imported modules, and its forks.

If the interpreter dies, hangs, sends invalid messages or cannot fork, the process is started cold.
Processes that were forked before keep running without it.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.json import decode
from hostelry.base.proc import ProcessIdentity
from hostelry.fleet.host.processes import MARKER_VARIABLE, WatchedProcess, identify, send
from hostelry.fleet.launch.warm_messages import ForkOrder, FromParent, ToParent, encode_line
from hostelry.fleet.launch.warm_rules import (
    WARM_MODULES,
    build_parent_environment,
    find_cold_cause,
    find_home_cause,
)
from hostelry.fleet.rules.copy_user import RunAs
from hostelry.fleet.rules.interpreter import PYTHON

LOG = logging.getLogger(__name__)

IMPORT_S = 60.0
FORK_S = 5.0
CODE_S = 3.0  # between a copy's end and its exit code
IDLE_S = 120.0  # of an interpreter without copies
RETRY_AFTER_S = 60.0  # pause after a failure of a warm interpreter
MAX_LINE_BYTES = 1 << 20
TITLE_ROOM = 1024  # bytes for the command line that a forked process shows

T = TypeVar("T")


class ColdStartError(Exception):
    """This copy cannot be forked. The message is the cause."""


class WarmStarts(Protocol):
    """Processes that have imported the modules that a kind of copies needs."""

    def prepare(self, argv: Sequence[str], given: Mapping[str, str]) -> None:
        """Start importing for a copy of `argv` and its own variables. Returns at once."""
        ...


class ForkedProcess(WatchedProcess):
    """A child of the warm interpreter, which reports its exit code."""

    start_kind = "warm"

    def __init__(self, process: WatchedProcess, parent: "WarmStream") -> None:
        super().__init__(process.identity)
        self._parent = parent
        self._code = parent.get_exit_code(process.identity.pid)

    def begin(self) -> None:
        """Let it run. Until then it waits, and it ends if its owner ends."""
        self._parent.begin(self.identity.pid)

    async def wait(self) -> int | None:
        """Wait for the end. Returns the exit code if the interpreter lived to report it."""
        await super().wait()
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._code), CODE_S)
        return None


class WarmForks:
    """Warm interpreters, one for each command with modules to import ahead.

    `folder` gets their log. `operator` is the part of the operator's environment that copies get.
    `commands` are the modules to import by command. They end after `idle_s` without copies.
    """

    def __init__(
        self,
        folder: Path,
        operator: Mapping[str, str],
        commands: Mapping[tuple[str, ...], tuple[str, ...]] = WARM_MODULES,
        idle_s: float = IDLE_S,
    ) -> None:
        self._folder = folder
        self._idle_s = idle_s
        self._commands = commands
        self._environment = build_parent_environment(operator)
        self._parents: dict[tuple[str, ...], WarmParent] = {}
        self._not_before = 0.0
        self._last_number = 0

    def prepare(self, argv: Sequence[str], given: Mapping[str, str]) -> None:
        """Start importing for a copy of `argv` and its own variables. Returns at once."""
        expected = {**self._environment, MARKER_VARIABLE: "", **given}
        if find_cold_cause(self._environment, expected) is None:
            self._prepare(self._commands.get(tuple(argv), ()))

    def _prepare(self, modules: tuple[str, ...]) -> None:
        there = self._parents.get(modules)
        if not modules or (there is not None and there.usable) or monotonic_s() < self._not_before:
            return
        try:
            self._parents[modules] = WarmParent(
                modules,
                self._environment,
                self._folder / "warm.log",
                self._idle_s,
                ("--no-new-privileges",),
            )
        except OSError as error:
            self._record_failure(f"it cannot be started: {error}")

    async def fork(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        copy_log: Path,
        run_as: RunAs | None = None,
    ) -> ForkedProcess | None:
        """Fork a copy that waits for `begin`. None for other programs. Raises ColdStartError."""
        modules = self._commands.get(tuple(argv), ())
        if not modules:
            return None
        cause = find_cold_cause(self._environment, environment)
        if cause is None and run_as is not None:
            cause = find_home_cause(environment)
        if cause is not None:
            raise ColdStartError(cause)
        self._prepare(modules)
        parent = self._parents.get(modules)
        if parent is None or not parent.usable:
            raise ColdStartError("the warm interpreter failed a short time ago")
        self._last_number += 1
        order = ForkOrder(
            number=self._last_number,
            module=modules[0],
            argv=tuple(argv),
            marker=MARKER_VARIABLE,
            environment=run_as.environment(environment) if run_as else dict(environment),
            folder=str(run_as.work if run_as else folder),
            log=str(copy_log),
            uid=run_as.uid if run_as else None,
            gid=run_as.gid if run_as else None,
        )
        try:
            return await parent.fork(order)
        except ColdStartError as error:
            self._record_failure(str(error))
            raise

    @property
    def processes(self) -> list[ProcessIdentity]:
        """The living interpreters."""
        return [parent.process.identity for parent in self._parents.values() if parent.usable]

    def close(self) -> None:
        """End the interpreters. The copies keep running."""
        for parent in self._parents.values():
            parent.end("the agent ends")

    def _record_failure(self, reason: str) -> None:
        LOG.warning("warm interpreter: %s; cold starts for %g s", reason, RETRY_AFTER_S)
        self._not_before = monotonic_s() + RETRY_AFTER_S


class WarmStream:
    """A stream of orders to a warm interpreter, which another process owns."""

    def __init__(self, ours: socket.socket) -> None:
        self._ours = ours
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._answer: asyncio.Future[FromParent] | None = None
        self._asked = 0
        self._codes: dict[int, asyncio.Future[int | None]] = {}
        self._failure: str | None = None
        self._forking = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._reading = asyncio.create_task(self._read(), name="warm interpreter")

    @property
    def usable(self) -> bool:
        """Whether it has not failed yet."""
        return self._failure is None

    async def fork(self, order: ForkOrder, fds: Sequence[int] = ()) -> ForkedProcess:
        """Fork a process, which waits for `begin`. It gets duplicates of `fds` as `order.fds`.

        Raises ColdStartError.
        """
        async with self._forking:
            if self._failure is not None:
                raise ColdStartError(self._failure)
            await self._await_within(self._ready, IMPORT_S, "it did not finish importing")
            self._answer, self._asked = asyncio.get_running_loop().create_future(), order.number
            try:
                self._send(ToParent(fork=order), fds)
                answer = await self._await_within(self._answer, FORK_S, "it did not fork")
            except UnicodeEncodeError as error:
                raise ColdStartError(f"a variable is no text: {error}") from None
            except OSError as error:  # it has just ended, or does not read
                self.end(f"it takes no order: {error}")
                raise ColdStartError(str(error)) from None
            finally:
                self._answer = None
            if answer.forked is None:
                self._on_refusal(answer.refused or "it answered neither yes nor no")
                raise ColdStartError(answer.refused)
            identity = identify(answer.forked)
            if identity is None:
                raise ColdStartError("the forked process was gone at once")
            return ForkedProcess(WatchedProcess(identity), self)

    def begin(self, pid: int) -> None:
        """Let a forked copy run."""
        self._send(ToParent(go=pid))

    def get_exit_code(self, pid: int) -> "asyncio.Future[int | None]":
        """The exit code of a forked copy once it is reported, or None if it never will be."""
        future = self._codes.setdefault(pid, asyncio.get_running_loop().create_future())
        if self._failure is not None and not future.done():
            future.set_result(None)
        return future

    def end(self, reason: str) -> None:
        """Close the stream. Forked processes keep running."""
        if self._failure is not None:
            return
        self._failure = reason
        self._reading.cancel()
        if self._writer is None:
            self._ours.close()
        if not self._ready.done():
            self._ready.set_exception(ColdStartError(reason))
            self._ready.exception()  # retrieved, because no caller may wait for it
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ColdStartError(reason))
        for code in self._codes.values():
            if not code.done():
                code.set_result(None)

    def _on_refusal(self, reason: str) -> None:
        """Do nothing after a refused fork, because the next fork may succeed."""

    async def _await_within(self, future: "asyncio.Future[T]", limit_s: float, otherwise: str) -> T:
        try:
            return await asyncio.wait_for(asyncio.shield(future), limit_s)
        except TimeoutError:
            reason = f"{otherwise} within {limit_s:g} s"
            self._on_refusal(reason)
            raise ColdStartError(reason) from None

    def _send(self, message: ToParent, fds: Sequence[int] = ()) -> None:
        if self._writer is None or self._writer.is_closing():
            return
        sent = encode_line(message)
        if fds:  # sent with the first byte of the line
            socket.send_fds(self._ours, [sent[:1]], list(fds))
            sent = sent[1:]
        self._writer.write(sent)

    async def _read(self) -> None:
        self._ours.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=self._ours, limit=MAX_LINE_BYTES)
        self._writer = writer
        try:
            while received := await reader.readline():
                self._take(decode(received, FromParent))
            self.end("it ended")
        except (OSError, ValueError, msgspec.DecodeError) as error:
            self.end(f"it sent an invalid message: {error}")
        finally:
            writer.close()

    def _take(self, message: FromParent) -> None:
        if message.ready and not self._ready.done():
            self._ready.set_result(None)
        if message.ended is not None:
            code = self.get_exit_code(message.ended)
            if not code.done():
                code.set_result(message.exit_code)
        if message.forked is None and message.refused is None:
            return
        if message.forked is not None:  # the kernel may have reused the pid
            self._codes[message.forked] = asyncio.get_running_loop().create_future()
        awaited = self._answer is not None and message.number == self._asked
        if awaited and self._answer is not None and not self._answer.done():
            self._answer.set_result(message)
        elif message.forked is not None and (orphan := identify(message.forked)) is not None:
            send([orphan], signal.SIGKILL)  # its start was cancelled


class ForkedInterpreter(NamedTuple):
    """A warm interpreter that is a fork of this process, and the socket of its orders.

    Its first line from the socket is a JSON list of the modules to import.
    """

    identity: ProcessIdentity
    orders: socket.socket


class WarmParent(WarmStream):
    """One warm interpreter, from its start to its end. A refused fork ends it.

    It is `forked` if that is given, and a new program otherwise.
    """

    def __init__(
        self,
        modules: tuple[str, ...],
        environment: Mapping[str, str],
        log: Path,
        idle_s: float,
        flags: Sequence[str] = (),
        forked: ForkedInterpreter | None = None,
    ) -> None:
        if forked is not None:
            self.process = WatchedProcess(forked.identity)
            forked.orders.sendall(msgspec.json.encode(modules) + b"\n")
            super().__init__(forked.orders)
            return
        ours, theirs = socket.socketpair()
        argv = [
            *PYTHON, "-m", "hostelry.fleet.launch.warm_process",
            "--socket-fd", str(theirs.fileno()), "--parent", str(os.getpid()),
            "--idle-s", f"{idle_s:g}", *flags, f"--room={'-' * TITLE_ROOM}", *modules,
        ]  # fmt: skip
        try:
            # In this thread, which lives as long as the agent: PR_SET_PDEATHSIG follows threads.
            self.process = WatchedProcess.start(
                argv, environment, log.parent, log, (theirs.fileno(),)
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        super().__init__(ours)

    async def lend(self) -> socket.socket:
        """Open another stream of orders. Returns the socket for the process that sends them.

        Raises ColdStartError. After that this interpreter forks no more.
        """
        await self._await_within(self._ready, IMPORT_S, "it did not finish importing")
        lent, theirs = socket.socketpair()
        with theirs:
            try:
                self._send(ToParent(lend=True), [theirs.fileno()])
            except OSError as error:
                lent.close()
                self.end(f"it takes no order: {error}")
                raise ColdStartError(str(error)) from None
        return lent

    def end(self, reason: str) -> None:
        """Kill the interpreter. Its copies keep running."""
        if self.usable:
            send([self.process.identity], signal.SIGKILL)
        super().end(reason)

    def _on_refusal(self, reason: str) -> None:
        self.end(reason)
