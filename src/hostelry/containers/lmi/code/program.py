"""The process of an author's code: `python -m hostelry.containers.lmi.code.program`.

Its main thread runs the author's code in an event loop. Another thread reads messages, so that the
process can say which line the code is at while it runs.
"""

import asyncio
import inspect
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec

from hostelry.containers.code.code_channel import (
    AuthorModule,
    CodeChannel,
    ServerGoneError,
    run_as_child,
)
from hostelry.containers.code.confinement import Confinement, ConfinementError, confine
from hostelry.containers.code.messages import (
    At,
    Broken,
    Cancel,
    FormatInput,
    FormatOutput,
    Handle,
    LoadCode,
    Loaded,
    NextItem,
    Raised,
    Replied,
    ToCode,
    Where,
)
from hostelry.containers.lmi.code.author_hooks import (
    HANDLE,
    INPUT_FORMATTER,
    OUTPUT_FORMATTER,
    AuthorModuleError,
    give_djl_python,
    load_author_module,
)
from hostelry.containers.lmi.code.djl_python.inputs import Input
from hostelry.containers.lmi.code.djl_python.outputs import Output
from hostelry.containers.lmi.code.hook_values import (
    CodeTokenizer,
    formatted_text,
    item_reply,
    response_object,
    whole_reply,
    write_value,
)


class CodeCalls(msgspec.Struct):
    """The calls that run in the author's module, and their streams, for the main thread."""

    module: AuthorModule
    start: LoadCode
    channel: CodeChannel
    tokenizer: CodeTokenizer
    tasks: dict[int, asyncio.Task[None]] = msgspec.field(default_factory=dict)
    streams: dict[int, Any] = msgspec.field(default_factory=dict)

    def begin(self, message: ToCode) -> None:
        """Carry out a message."""
        if isinstance(message, Cancel):
            self._cancel(message.id)
        elif not isinstance(message, LoadCode | Where):
            task = asyncio.get_running_loop().create_task(self._answer(message.id, message))
            self.tasks[message.id] = task

    def place(self, call: int) -> str | None:
        """The line at which a call is. For the thread that reads messages."""
        task = self.tasks.get(call)
        busy_at = self.module.main_thread_place()
        return busy_at or (self.module.coroutine_place(task.get_coro()) if task else None)

    async def _answer(self, call: int, message: ToCode) -> None:
        try:
            reply = await self._result(message)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the author's, reported to the client
            self.channel.send(Raised(call, self.module.describe(error)))
        else:
            self.channel.send(reply)
        finally:
            self.tasks.pop(call, None)

    async def _result(self, message: ToCode) -> Replied:
        if isinstance(message, Handle):
            return await self._handle(message)
        if isinstance(message, NextItem):
            return await self._next(message)
        if isinstance(message, FormatInput):
            return await self._format_input(message)
        if isinstance(message, FormatOutput):
            value: Any = message.response.decode()
            if not message.is_event:
                value = response_object(message.response, message.lmi)
            result = await self._call_hook(OUTPUT_FORMATTER, value)
            return Replied(message.id, formatted_text(result).encode())
        raise TypeError(f"{type(message).__name__} is no call")

    async def _handle(self, message: Handle) -> Replied:
        result = await self._call_hook(HANDLE, self._input(message))
        if inspect.isasyncgen(result) or inspect.isgenerator(result):
            return self._open_stream(message.id, result)
        reply = whole_reply(message.id, result)
        if isinstance(result, Output) and result.stream_content is not None:
            items = formatted_items(result.stream_content, result.stream_output_formatter)
            opened = self._open_stream(message.id, items)
            return Replied(message.id, b"", reply.status, reply.headers, is_stream=opened.is_stream)
        return reply

    def _input(self, message: Handle) -> Input:
        given = Input()
        given.function_name = HANDLE
        given.properties.update(message.properties)
        given.properties["model_dir"] = self.start.model_dir
        for key, value in message.contents:
            given.content.add(key, bytearray(value))
        return given

    def _open_stream(self, call: int, items: Any) -> Replied:
        self.streams[call] = items
        return Replied(call, is_stream=True)

    async def _next(self, message: NextItem) -> Replied:
        items = self.streams[message.of]
        end = object()
        item = await anext(items, end) if inspect.isasyncgen(items) else next(items, end)
        if item is not end:
            reply = item_reply(message.id, item)
            if not reply.is_last:
                return reply
        self.streams.pop(message.of, None)
        return Replied(message.id, is_last=True) if item is end else reply

    async def _format_input(self, message: FormatInput) -> Replied:
        payload = json.loads(message.payload)
        result = await self._call_hook(INPUT_FORMATTER, payload, tokenizer=self.tokenizer)
        if not isinstance(result, dict):
            raise TypeError(f"the input formatter returned {type(result).__name__}, not a dict")
        return Replied(message.id, write_value(result).encode())

    async def _call_hook(self, hook: str, *values: Any, **named: Any) -> Any:
        result = self.module.hooks[hook](*values, **named)
        return await result if isinstance(result, Awaitable) else result

    def _cancel(self, call: int) -> None:
        stream = self.streams.pop(call, None)
        if task := self.tasks.get(call):
            task.cancel()
        if inspect.isgenerator(stream):
            stream.close()
        elif inspect.isasyncgen(stream):
            self.tasks[-call] = asyncio.ensure_future(self._close_stream(-call, stream))

    async def _close_stream(self, key: int, stream: Any) -> None:
        try:
            await stream.aclose()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the author's, in the log
            print(f"a stream did not close: {self.module.describe(error)}", file=sys.stderr)
        finally:
            self.tasks.pop(key, None)


def formatted_items(items: Iterator[Any], formatter: Callable[[Any], Any] | None) -> Iterator[Any]:
    """The items of `add_stream_content`."""
    for item in items:
        yield item if formatter is None else formatter(item)


def read_messages(channel: CodeChannel, calls: CodeCalls, loop: asyncio.AbstractEventLoop) -> None:
    """Pass messages to the main thread until the server closes its end, then exit."""
    while True:
        try:
            message = channel.receive()
            if isinstance(message, Where):
                channel.send(At(message.id, calls.place(message.id)))
            else:
                loop.call_soon_threadsafe(calls.begin, message)
        except (ServerGoneError, OSError):
            os._exit(0)


async def serve_calls(channel: CodeChannel, calls: CodeCalls) -> None:
    """Carry out calls until the process ends. The first call of `handle` is empty, as in LMI."""
    loop = asyncio.get_running_loop()
    threading.Thread(target=read_messages, args=(channel, calls, loop), daemon=True).start()
    channel.send(Loaded(tuple(sorted(calls.module.hooks))))
    await asyncio.Event().wait()


def run_code(channel: CodeChannel) -> int:
    """Load and serve. Returns the exit status."""
    start = channel.receive()
    if not isinstance(start, LoadCode):
        raise TypeError(f"the first message is {type(start).__name__}, not LoadCode")
    try:
        if start.readable:
            confine(Confinement(readable=start.readable, writable=start.writable))
        os.chdir(start.folder)
        give_djl_python()
        module = load_author_module(start.folder, start.packages)
    except (AuthorModuleError, ConfinementError, OSError) as error:
        channel.send(Broken(str(error)))
        return 1
    calls = CodeCalls(module, start, channel, CodeTokenizer(start.tokenizer_folder))
    asyncio.run(serve_calls(channel, calls))
    return 0


def main() -> int:
    """Run as the child of a server, whose end of the socket is the parent's."""
    return run_as_child(run_code)


if __name__ == "__main__":
    raise SystemExit(main())
