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
import time
from contextlib import suppress
from pathlib import Path

import torch
from msgspec.structs import replace

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
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.settings.ranks import OPTION as RANKS_OPTION
from hostelry.containers.lmi.settings.ranks import Holding, RankChoice, choose_ranks
from hostelry.engine.engine import AdapterError, Engine
from hostelry.engine.models.pooling_files import read_pooling
from hostelry.engine.models.registry import read_config
from hostelry.engine.models.spec import UnsupportedModelError
from hostelry.engine.runner.parallel import ParallelError
from hostelry.engine.sampling.grammar import GrammarError
from hostelry.engine.sampling.xgrammar_binding import load_xgrammar

# Imported before the first request, and by a warm interpreter once for all copies. A later import
# would hold the interpreter's lock for 0.2 s, and delay every request's next token.
with suppress(GrammarError):
    load_xgrammar()

PR_SET_PDEATHSIG = 1
RECEIVE_BYTES = 1 << 20
RANK_END_S = 5.0  # how long the engine's thread takes at most to notice that a rank has ended
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


def choose_own_ranks(folder: Path, settings: EngineSettings) -> RankChoice:
    """The ranks of our engine, by the devices that this process sees.

    Raises UnsupportedModelError for the folder or a number of stages, and ValueError for the ranks.
    """
    if settings.pipeline_parallel > 1:
        raise UnsupportedModelError(
            f"pipeline_parallel_degree is {settings.pipeline_parallel}, and this engine has no "
            f"stages; set it to 1, or give {RANKS_OPTION} alone"
        )
    whole = None
    if settings.fuse_adapter is not None:
        whole = f"fuse_adapter is {settings.fuse_adapter}, which is merged in one process"
    elif read_pooling(folder, read_config(folder), settings.pooled) is not None:
        whole = "a model that gives vectors is computed by one process"
    elif settings.weight_dtype == "int8":
        whole = "weights of int8 are computed by one process"
    holding = Holding(
        reserved=settings.accelerators,
        devices=torch.cuda.device_count(),
        cpus=len(os.sched_getaffinity(0)),
        cpu_ranks=settings.cpu_ranks,
    )
    return choose_ranks(settings.degree, holding, whole=whole)


def load(start: StartEngine, ranks: int) -> Engine:
    """The engine with its model on `ranks` ranks, and first adapters.

    Raises the engine's errors. The failure of an adapter names the adapter and its folder.
    """
    engine = Engine.load(
        Path(start.folder),
        replace(start.settings, tensor_parallel=ranks),
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
        choice = choose_own_ranks(Path(start.folder), start.settings)
        LOG.info("%s", choice.reason)
        engine = load(start, choice.ranks)
        notes = [] if choice.warning is None else [choice.warning]
        engine.watch(lambda reason: end_after_rank(channel, reason))
        channel.send(ModelLoaded(facts(engine, start.settings.page_tokens, notes)))
        run_engine(engine, channel)
    except ParentGoneError:
        return 0
    except ParallelError as error:
        LOG.error("%s", error)  # noqa: TRY400 - the rank wrote its traceback
        with suppress(ParentGoneError):
            channel.send(Failed(str(error)))
        return 1
    except Exception as error:
        LOG.exception("the engine failed")
        with suppress(ParentGoneError):
            is_unsupported = isinstance(error, UnsupportedModelError)
            channel.send(Failed(f"{type(error).__name__}: {error}", is_unsupported))
        return 1
    return 0


def run_engine(engine: Engine, channel: EngineChannel) -> None:
    """Handle messages between steps. All outputs of a step are sent in one message.

    Raises ParentGoneError once the parent closes the socket, and ParallelError once a rank has
    failed and its requests have ended.
    """
    loop = MessageLoop(OwnEngine(engine), channel.send, channel.wake)
    sent_at = monotonic_s()
    while True:
        is_idle = not engine.has_work and engine.failure is None
        for message in channel.receive(wait=is_idle):
            loop.take(message)
        loop.settle()
        if not engine.has_work:
            if engine.failure is not None:
                raise ParallelError(engine.failure)
            sent_at = monotonic_s()
            continue
        outputs = engine.step()
        now = monotonic_s()
        if outputs or now - sent_at > SILENT_S:
            sent_at = now
            channel.send(Stepped(tuple(outputs)))


def end_after_rank(channel: EngineChannel, reason: str) -> None:
    """Wake the engine's thread after the end of a rank, and end the process if it does not end.

    A collective of GPUs may wait for the ended rank for a long time.
    """
    channel.wake()
    time.sleep(RANK_END_S)
    LOG.error("%s", reason)
    logging.shutdown()
    os._exit(1)


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
