"""`hostelry up --detach`: `up` in the background, which `processes.background` starts.

``python -m hostelry.processes.detached OPTIONS_JSON [LOCK_FD]`` prints its progress as JSON lines
to standard output, closes that when it is ready or has failed, and then logs to logs/up.log.
"""

import asyncio
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import IO, Any

import msgspec

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.logging import configure_logging
from hostelry.base.system import failure_text
from hostelry.fleet.launch.warm import ForkedInterpreter
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.home.store_option import VARIABLE
from hostelry.home.up_options import UpOptions
from hostelry.processes.background import StartupProgress, command_line, decode_options
from hostelry.processes.service_forks import fork_interpreter
from hostelry.processes.up import Relaunch, Report, log_line, run_up


def build_report(stream: IO[bytes]) -> Report:
    """A report that writes to the log, and `StartupProgress` lines to `stream` until ready."""

    def send(progress: StartupProgress) -> None:
        if stream.closed:
            return
        try:
            stream.write(msgspec.json.encode(progress) + b"\n")
            stream.flush()
        except BrokenPipeError:  # the waiting command has ended, but the platform starts
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


def choose_runner(
    options: UpOptions, forked: ForkedInterpreter | None
) -> Callable[[UpOptions, Mapping[str, str], Report, Relaunch], Coroutine[Any, Any, None]]:
    """The function that runs a platform or a host's gateways, or control alone."""
    if not options.control_only:
        return partial(run_up, forked=forked)
    # Imported late: a platform on one machine does not need it.
    from hostelry.processes.control_host import run_control

    return run_control


def main() -> int:
    """Run `up` with the options of the command line. Returns 1 if it could not start."""
    options = replace(decode_options(sys.argv[1]), store=os.environ.get(VARIABLE))
    forked = None if options.control_only else fork_interpreter(Home(options.home))
    configure_logging("up", log_format=options.log_format)
    lock = int(sys.argv[2]) if len(sys.argv) > 2 else None
    if lock is not None and not Home(options.home).kept.exists():
        os._exit(0)  # `hostelry down` came meanwhile, and waits for the lock
    relaunch = Relaunch(argv=tuple(command_line(options)), lock=lock)
    run = choose_runner(options, forked)
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        asyncio.run(run(options, os.environ, build_report(stream), relaunch))
    except TerminalError as error:
        report_failure(stream, str(error), is_usage=isinstance(error, UsageError))
        return 1
    except OSError as error:
        with contextlib.suppress(OSError):  # the log's disk may be full, too
            traceback.print_exc()
        report_failure(stream, failure_text(error, os.environ.get("TMPDIR", "/tmp")))
        return 1
    return 0


def report_failure(stream: IO[bytes], text: str, *, is_usage: bool = False) -> None:
    """Log why `up` ends, and report it to the command that waits."""
    with contextlib.suppress(OSError):
        log_line(text)
    if not stream.closed:
        with contextlib.suppress(BrokenPipeError), stream:
            failure = StartupProgress(error=text, is_usage=is_usage)
            stream.write(msgspec.json.encode(failure) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
