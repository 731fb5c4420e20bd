"""`hostelry up --detach`: `up` in the background, followed until it is ready.

``python -m hostelry.server.detached OPTIONS_JSON [LOCK_FD]`` prints its progress as JSON lines to
standard output, closes that when it is ready or has failed, and logs to logs/up.log from then on.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import IO, Any

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.base.logging import configure_logging
from hostelry.server.home import Credentials, Home, UpConfig
from hostelry.server.store_option import VARIABLE
from hostelry.server.supervisor import PRIVATE_UMASK
from hostelry.server.up import Relaunch, Report, log_line, make_home, run_up
from hostelry.server.up_options import UpOptions


class StartupProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line from the background: exactly one member is set."""

    phase: str | None = None
    note: str | None = msgspec.field(default=None, name="said")
    error: str | None = None
    ready: bool = False


def start_detached(options: UpOptions, on_progress: Callable[[StartupProgress], None]) -> int:
    """Start `up` in the background and return its pid once it is ready.

    `on_progress` receives each phase and note. Raises TerminalError with the reason when it cannot
    start; by then it has stopped again.
    """
    home = make_home(options.home)
    # A URL has a password: it is on no command line, where every user of the machine reads it.
    environment = dict(os.environ) | ({VARIABLE: options.store} if options.store else {})
    log = os.open(home.logs / "up.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    argv = command_line(options)
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


def command_line(options: UpOptions) -> list[str]:
    """The command that starts `up` in the background; the watcher appends the lock's descriptor."""
    return [sys.executable, "-m", "hostelry.server.detached", encode_options(options)]


def encode_options(options: UpOptions) -> str:
    """The options as one JSON argument, without the store's URL."""
    return msgspec.json.encode(replace(options, store=None), enc_hook=str).decode()


def decode_options(text: str) -> UpOptions:
    """The options of `encode_options`."""
    return msgspec.json.decode(text, type=UpOptions, dec_hook=lambda kind, value: kind(value))


def until_ready(
    process: "subprocess.Popen[bytes]", home: Home, on_progress: Callable[[StartupProgress], None]
) -> int:
    """Read the progress of `up` until it is ready; its pid."""
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            progress = decode(line, StartupProgress)
            if progress.error is not None:
                raise TerminalError(progress.error)
            if progress.ready:
                return process.pid
            on_progress(progress)
    raise TerminalError(
        f"it ended with code {process.wait()} before it was ready; see {home.logs / 'up.log'}"
    )


def reporter(stream: IO[bytes]) -> Report:
    """A report that writes `StartupProgress` lines until ready, and the log always."""

    def send(progress: StartupProgress) -> None:
        if stream.closed:
            return
        try:
            stream.write(msgspec.json.encode(progress) + b"\n")
            stream.flush()
        except BrokenPipeError:  # the waiting command is gone; the platform starts all the same
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def phase(text: str) -> None:
        log_line(text)
        send(StartupProgress(phase=text))

    def say(text: str) -> None:
        log_line(text)
        send(StartupProgress(note=text))

    def ready(config: UpConfig, credentials: Credentials) -> None:
        log_line(f"ready at {config.client_url} (account {credentials.account_id})")
        send(StartupProgress(ready=True))
        if not stream.closed:
            stream.close()

    return Report(phase=phase, say=say, ready=ready)


def runner_of(
    options: UpOptions,
) -> Callable[[UpOptions, Mapping[str, str], Report, Relaunch], Coroutine[Any, Any, None]]:
    """What runs with these options: a platform, a host's gateways, or control alone."""
    if not options.control_only:
        return run_up
    # Imported where it runs: a platform on one machine needs none of it.
    from hostelry.server.control_host import run_control

    return run_control


def main() -> int:
    """Run `up` with the options of the command line; 1 where it could not start."""
    options = replace(decode_options(sys.argv[1]), store=os.environ.get(VARIABLE))
    configure_logging("up", log_format=options.log_format)
    lock = int(sys.argv[2]) if len(sys.argv) > 2 else None
    if lock is not None and not Home(options.home).kept.exists():
        os._exit(0)  # `hostelry down` came meanwhile, and waits for the lock
    relaunch = Relaunch(argv=tuple(command_line(options)), lock=lock)
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        asyncio.run(runner_of(options)(options, os.environ, reporter(stream), relaunch))
    except TerminalError as error:
        log_line(str(error))
        if not stream.closed:
            with contextlib.suppress(BrokenPipeError), stream:
                stream.write(msgspec.json.encode(StartupProgress(error=str(error))) + b"\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
