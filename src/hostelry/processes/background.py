"""Start of `up` in the background, by `processes.detached`, followed until it is ready."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import msgspec

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.files import PRIVATE_UMASK
from hostelry.base.json import decode
from hostelry.fleet.rules.interpreter import PYTHON
from hostelry.home.home import ENVIRONMENT_VARIABLE, MARK_ROOM, SERVICE_VARIABLE, Home, make_home
from hostelry.home.store_option import VARIABLE
from hostelry.home.up_options import UpOptions
from hostelry.processes.open_python import other_interpreter


class StartupProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line from the background: exactly one of phase, note, error and ready is set.

    `is_usage`: the error is about the options.
    """

    phase: str | None = None
    note: str | None = msgspec.field(default=None, name="said")
    error: str | None = None
    is_usage: bool = False
    ready: bool = False


def start_detached(options: UpOptions, on_progress: Callable[[StartupProgress], None]) -> int:
    """Start `up` in the background and return its pid once it is ready.

    `on_progress` receives each phase and note. Raises TerminalError with the reason if it cannot
    start, after it has stopped again.
    """
    home = make_home(options.home)
    # A URL has a password: it is on no command line, where every user of the machine reads it.
    environment = dict(os.environ) | ({VARIABLE: options.store} if options.store else {})
    environment[SERVICE_VARIABLE] = "-" * MARK_ROOM  # for the services that `up` forks
    environment[ENVIRONMENT_VARIABLE] = str(home.root)
    log = os.open(home.logs / "up.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    python = None if options.gateway_only else other_interpreter(options.copy_user, home)
    argv = command_line(options, str(python or sys.executable))
    try:
        process = subprocess.Popen(
            argv,
            cwd=home.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            umask=PRIVATE_UMASK,
            start_new_session=True,
        )
    finally:
        os.close(log)
    try:
        return until_ready(process, home, on_progress)
    except BaseException:
        process.terminate()
        process.wait()
        raise


def command_line(options: UpOptions, python: str = sys.executable) -> list[str]:
    """The command that starts `up` in the background. The watcher appends the lock's descriptor."""
    return [python, *PYTHON[1:], "-m", "hostelry.processes.detached", encode_options(options)]


def encode_options(options: UpOptions) -> str:
    """The options as one JSON argument, without the store's URL."""
    return msgspec.json.encode(replace(options, store=None), enc_hook=str).decode()


def decode_options(text: str) -> UpOptions:
    """The options of `encode_options`."""
    return msgspec.json.decode(text, type=UpOptions, dec_hook=lambda kind, value: kind(value))


def until_ready(
    process: "subprocess.Popen[bytes]", home: Home, on_progress: Callable[[StartupProgress], None]
) -> int:
    """Read the progress of `up` until it is ready. Returns its pid."""
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            progress = decode(line, StartupProgress)
            if progress.error is not None:
                raise (UsageError if progress.is_usage else TerminalError)(progress.error)
            if progress.ready:
                return process.pid
            on_progress(progress)
    raise TerminalError(
        f"it ended with code {process.wait()} before it was ready; see {home.logs / 'up.log'}"
    )
