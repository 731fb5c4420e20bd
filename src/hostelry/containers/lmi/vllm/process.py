"""The engine process with vLLM, run by the Python of its runtime environment.

It and vLLM's own processes form one process group, which never outlives the server. When the server
is gone, a thread kills the group. When this process is gone, the server kills the group.
"""

import argparse
import asyncio
import logging
import os
import shutil
import signal
import socket
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hostelry.base.clock import MonotonicClock
from hostelry.base.json import decode
from hostelry.base.logging import configure_logging
from hostelry.base.system import readable
from hostelry.containers.lmi.adapters.fetchers import adapter_fetchers
from hostelry.containers.lmi.engine.loop import MessageLoop, Send
from hostelry.containers.lmi.engine.messages import (
    TO_ENGINE,
    Failed,
    FromEngine,
    ModelLoaded,
    StartEngine,
    Unframer,
    frame,
)
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.vllm.adapters import (
    AdapterPreparer,
    base_files,
    base_linears,
    is_base_weight,
    read_own_config,
)
from hostelry.containers.lmi.vllm.arguments import sampling_arguments
from hostelry.containers.lmi.vllm.async_llm import AsyncVllm, find_gpu
from hostelry.containers.lmi.vllm.engine import VllmEngine
from hostelry.containers.lmi.vllm.first_error import (
    failure_text,
    first_error,
    names_unknown_model,
)
from hostelry.containers.lmi.vllm.interface import Vllm
from hostelry.containers.lmi.vllm.sizes import adapter_width, fit_steps
from hostelry.engine.lora.config import BaseIdentity
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.request import Request, SamplingParams
from hostelry.engine.sampling.structure_compiler import StructureCompiler

RECEIVE_BYTES = 1 << 18
MEMORY_VARIABLE = "HOSTELRY_MEMORY_BYTES"
READY_WAIT_S = 0.1

LOG = logging.getLogger(__name__)


def end_token_ids(folder: Path) -> tuple[int, ...]:
    """The tokens that end an answer: generation_config.json's, else config.json's."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        if not path.is_file():
            continue
        fields = decode(path.read_bytes(), dict[str, Any])
        for part in (fields, fields.get("text_config") or {}):
            value = part.get("eos_token_id")
            if value is not None:
                return tuple(value) if isinstance(value, list) else (value,)
    return ()


def memory_bytes(env: Mapping[str, str]) -> int:
    """The memory of this server: its reservation, else the machine's available memory."""
    reserved = env.get(MEMORY_VARIABLE, "")
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(int(reserved), available) if reserved.isdecimal() else available


def preparer(folder: Path, settings: EngineSettings, place: Path) -> AdapterPreparer | None:
    """The reader of adapters. None if LoRA is off."""
    if not settings.enable_lora:
        return None
    return AdapterPreparer(
        linears=base_linears(folder),
        is_base_weight=partial(is_base_weight, base_files(folder)),
        identity=BaseIdentity(names=(*settings.base_names, folder.name)),
        max_rank=settings.max_lora_rank,
        place=place,
        fetchers=adapter_fetchers(),
    )


async def serve(stream: socket.socket, place: Path) -> int:
    """Load on the first message, run until the server closes the socket, and return the status."""
    stream.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=stream)

    def send(message: FromEngine) -> None:
        if not writer.is_closing():
            writer.write(frame(message))

    try:
        return await run(reader, send, place)
    except ConnectionError:
        return 0
    except Exception as error:
        LOG.exception("the engine failed")
        text = failure_text(error, first_error(place))
        send(Failed(text, is_unsupported=names_unknown_model(text)))
        await writer.drain()
        return 1


async def run(reader: asyncio.StreamReader, send: Send, place: Path) -> int:
    """Load, then handle messages until the end of `reader`, or vLLM's."""
    unframer = Unframer()
    bodies: list[bytes] = []
    while not bodies:
        data = await reader.read(RECEIVE_BYTES)
        if not data:
            return 0
        bodies = unframer.feed(data)
    start = TO_ENGINE.decode(bodies.pop(0))
    if not isinstance(start, StartEngine):
        raise TypeError(f"the first message is {type(start).__name__}, not StartEngine")
    gpu = find_gpu()
    settings = fit_steps(start.settings, gpu)
    folder = Path(start.folder)
    ends = end_token_ids(folder)
    llm = AsyncVllm(
        start.folder,
        settings,
        end_token_ids=ends,
        gpu=gpu,
        memory_bytes=memory_bytes(os.environ),
        width=adapter_width(read_own_config(folder)),
    )
    await prove(llm)
    structures = StructureCompiler(
        folder, vocab_size=llm.facts.vocab_size, end_token_ids=llm.facts.eos_token_ids
    )
    prepare = preparer(folder, settings, place)
    engine = VllmEngine(
        llm,
        settings,
        prepare=None if prepare is None else prepare.prepare,
        compile_structure=structures.submit,
        send=send,
        clock=MonotonicClock(),
    )
    for name, source in start.adapters:
        try:
            adapter = await asyncio.to_thread(engine.prepare_adapter, name, source)
        except (AdapterError, OSError, ValueError) as error:
            raise AdapterError(f"adapter {name} in {source} cannot be loaded: {error}") from error
        engine.register_adapter(name, adapter, pin=False, replace=False)
        LOG.info("Registered adapter %s from %s successfully", name, source)
    event_loop = asyncio.get_running_loop()
    loop = MessageLoop(engine, send, lambda: event_loop.call_soon_threadsafe(loop.settle))
    send(ModelLoaded(llm.facts))
    receiving = asyncio.ensure_future(receive(reader, unframer, bodies, loop))
    beating = asyncio.ensure_future(engine.beat())
    await asyncio.wait((receiving, beating), return_when=asyncio.FIRST_COMPLETED)
    if beating.done():
        send(Failed(beating.result()))
        await asyncio.sleep(READY_WAIT_S)
        return 1
    engine.close()
    receiving.result()
    llm.shutdown()
    return 0


async def prove(llm: Vllm) -> None:
    """Compute one token: a model that loads may have no kernel on this device.

    Raises EngineFailedError or ValueError.
    """
    request = Request(
        id="first", prompt_token_ids=(0, 0), sampling=SamplingParams(max_new_tokens=1)
    )
    async for _ in llm.generate(request, sampling_arguments(request, ()), None):
        pass


async def receive(
    reader: asyncio.StreamReader, unframer: Unframer, bodies: list[bytes], loop: MessageLoop
) -> None:
    """Handle messages until the server closes the socket. `bodies` came with the first message."""
    for body in bodies:
        loop.take(TO_ENGINE.decode(body))
    while data := await reader.read(RECEIVE_BYTES):
        for body in unframer.feed(data):
            loop.take(TO_ENGINE.decode(body))


def end_with(parent: int, place: Path) -> None:
    """Delete `place` and kill this process group once the process `parent` is gone."""
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        os.killpg(0, signal.SIGKILL)
        return

    def watch() -> None:
        readable(descriptor, within_s=None)
        shutil.rmtree(place, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def main() -> int:
    """Run as `python -m MODULE --socket-fd N --parent PID --place DIR`. Returns the exit status."""
    parser = argparse.ArgumentParser(description="The LLM model server's engine process with vLLM.")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--place", type=Path, required=True, help="folder for adapters")
    arguments = parser.parse_args()
    stream = socket.socket(fileno=arguments.socket_fd)
    end_with(arguments.parent, arguments.place)
    if os.getppid() != arguments.parent:
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    configure_logging("lmi-vllm")
    return asyncio.run(serve(stream, arguments.place))


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    os._exit(status)  # vLLM's threads do not end by themselves
