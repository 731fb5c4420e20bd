"""The engine process: loads the model, then runs the loop over one socket.

Started by `child.py` with the socket as a file descriptor, or forked by it. It never outlives its
parent: the kernel kills it when the parent dies, and a closed socket ends it, too. It ignores
signals to the process group. The parent ends it by closing the socket.
"""

import argparse
import ctypes
import logging
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from hostelry.base.clock import monotonic_s
from hostelry.base.logging import configure_logging
from hostelry.base.system import readable
from hostelry.containers.lmi.adapters.fetchers import adapter_fetchers
from hostelry.containers.lmi.engine.child import engine_environment
from hostelry.containers.lmi.engine.loop import MessageLoop
from hostelry.containers.lmi.engine.messages import (
    TO_ENGINE,
    Failed,
    FromEngine,
    ModelLoaded,
    StartEngine,
    Stepped,
    ToEngine,
    Unframer,
    frame,
)
from hostelry.containers.lmi.engine.own_engine import OwnEngine, facts
from hostelry.engine.engine import AdapterError, Engine
from hostelry.engine.models.spec import UnsupportedModelError
from hostelry.engine.sampling.grammar import GrammarError
from hostelry.engine.sampling.xgrammar_binding import load_xgrammar

# Imported before the first request, and by a warm interpreter once for all copies. A later import
# would hold the interpreter's lock for 0.2 s, and delay every request's next token.
with suppress(GrammarError):
    load_xgrammar()

PR_SET_PDEATHSIG = 1
RECEIVE_BYTES = 1 << 20
SILENT_S = 10.0  # without outputs for that long, an empty `Stepped` is sent as a heartbeat

LOG = logging.getLogger(__name__)


class ParentGoneError(Exception):
    """The HTTP process closed its end."""


class EngineChannel:
    """Messages from and to the HTTP process. Only `wake` is safe from other threads."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._unframer = Unframer()
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(self) -> None:
        """Wake a waiting `receive`."""
        os.eventfd_write(self._woken, 1)

    def receive(self, *, wait: bool) -> list[ToEngine]:
        """The messages that arrived. With `wait`, blocks until a message or a call of `wake`.

        Raises ParentGoneError.
        """
        source = self._stream.fileno()
        ready = readable(source, self._woken, within_s=None if wait else 0.0)
        if self._woken in ready:
            os.eventfd_read(self._woken)
        messages: list[ToEngine] = []
        while source in ready:
            data = self._stream.recv(RECEIVE_BYTES)
            if not data:
                raise ParentGoneError
            messages += [TO_ENGINE.decode(body) for body in self._unframer.feed(data)]
            ready = readable(source, within_s=0.0)
        return messages

    def send(self, message: FromEngine) -> None:
        """Write `message` whole. Raises ParentGoneError."""
        try:
            self._stream.sendall(frame(message))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ParentGoneError from error


def load(start: StartEngine) -> Engine:
    """The engine with its model and first adapters.

    Raises the engine's errors. The failure of an adapter names the adapter and its folder.
    """
    engine = Engine.load(
        Path(start.folder),
        start.settings,
        tenants=start.settings.tenants,
        fetchers=adapter_fetchers(),
    )
    for name, folder in start.adapters:
        try:
            engine.load_adapter(name, Path(folder))
        except (AdapterError, OSError) as error:
            raise AdapterError(f"adapter {name} in {folder} cannot be loaded: {error}") from error
        LOG.info("Registered adapter %s from %s successfully", name, folder)
    engine.await_fused()
    return engine


def first(channel: EngineChannel) -> ToEngine:
    """The first message. Raises ParentGoneError."""
    while True:
        for message in channel.receive(wait=True):
            return message


def serve(channel: EngineChannel) -> int:
    """Load on the first message, run until the parent closes the socket, and return the status."""
    try:
        start = first(channel)
        if not isinstance(start, StartEngine):
            raise TypeError(f"the first message is {type(start).__name__}, not StartEngine")  # noqa: TRY301 - one edge reports every failure
        os.environ.update(engine_environment(os.environ, start.settings))
        engine = load(start)
        channel.send(ModelLoaded(facts(engine, start.settings.page_tokens)))
        run_engine(engine, channel)
    except ParentGoneError:
        return 0
    except Exception as error:
        LOG.exception("the engine failed")
        with suppress(ParentGoneError):
            is_unsupported = isinstance(error, UnsupportedModelError)
            channel.send(Failed(f"{type(error).__name__}: {error}", is_unsupported))
        return 1
    return 0


def run_engine(engine: Engine, channel: EngineChannel) -> None:
    """Handle messages between steps. All outputs of a step are sent in one message.

    Raises ParentGoneError once the parent closes the socket.
    """
    loop = MessageLoop(OwnEngine(engine), channel.send, channel.wake)
    sent_at = monotonic_s()
    while True:
        for message in channel.receive(wait=not engine.has_work):
            loop.take(message)
        loop.settle()
        if not engine.has_work:
            sent_at = monotonic_s()
            continue
        outputs = engine.step()
        now = monotonic_s()
        if outputs or now - sent_at > SILENT_S:
            sent_at = now
            channel.send(Stepped(tuple(outputs)))


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Run as `python -m hostelry.containers.lmi.engine.process --socket-fd N --parent PID`."""
    parser = argparse.ArgumentParser(description="The engine process of the LLM model server.")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    arguments = parser.parse_args()
    return run(socket.socket(fileno=arguments.socket_fd), arguments.parent)


def run(stream: socket.socket, parent: int) -> int:
    """Serve the process `parent` on `stream`. Returns the exit status."""
    die_with_parent()
    if os.getppid() != parent:
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    configure_logging("lmi-engine")
    with stream:
        return serve(EngineChannel(stream))


if __name__ == "__main__":
    raise SystemExit(main())
