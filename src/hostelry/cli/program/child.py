"""Run a program as a child process that behaves as if it had replaced this process."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from hostelry.base.errors import HostelryError

PR_SET_PDEATHSIG = 1
NOT_EXECUTABLE, NOT_FOUND = 126, 127
# Signals that are passed on. A terminal sends SIGINT and SIGQUIT to the program, too.
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
OF_TERMINALS = (signal.SIGINT, signal.SIGQUIT)


class CannotRunError(HostelryError):
    """The program cannot be started. `code` is a shell's exit code for this."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


async def run_child(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run `command` with this process's terminal and files. Returns its code, or -N for signal N.

    Passes this process's signals on. The program ends if this process is killed. Raises
    CannotRunError.
    """
    parent = os.getpid()
    sys.stdout.flush()
    with Signals(asyncio.get_running_loop()) as signals:
        try:
            child = await asyncio.create_subprocess_exec(
                *command, env=dict(environment), preexec_fn=lambda: end_with(parent)
            )
        except FileNotFoundError:
            raise CannotRunError(f"{command[0]}: command not found", NOT_FOUND) from None
        except OSError as error:
            raise CannotRunError(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE) from None
        signals.send_to(child)
        return await child.wait()


class Signals:
    """Passes this process's signals on to the child. Signals before its start are kept for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[int] = []
        self._child: asyncio.subprocess.Process | None = None

    def __enter__(self) -> "Signals":
        on_terminal = sys.stdin is not None and sys.stdin.isatty()
        for number in PASSED_ON:
            self._loop.add_signal_handler(number, self._came, number)
        for number in OF_TERMINALS:
            came = self._had_by_the_child if on_terminal else self._came
            self._loop.add_signal_handler(number, came, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (*PASSED_ON, *OF_TERMINALS):
            self._loop.remove_signal_handler(number)

    def send_to(self, child: asyncio.subprocess.Process) -> None:
        """Send the child the kept signals, and all later signals."""
        self._child = child
        for number in self._waiting:
            self._came(number)

    def _came(self, number: int) -> None:
        if self._child is None:
            self._waiting.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)

    def _had_by_the_child(self, number: int) -> None:
        """Do nothing, because the terminal sends the signal to the child, too."""


def end_with(parent: int) -> None:
    """Have this process, which becomes the program, end with its parent (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)


def end_as(code: int) -> None:
    """End this process like the program: by the same signal, or with the same exit code."""
    if code < 0:
        number = signal.Signals(-code)
        with contextlib.suppress(OSError, ValueError):  # SIGKILL and SIGSTOP have no handler
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        sys.exit(128 + number)
    sys.exit(code)
