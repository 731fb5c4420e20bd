"""The process of an archive's functions: `python -m hostelry.containers.graph.function_program`.

Its main thread calls the functions, one after the other; another one reads messages, so that the
process says at which line a function hangs.
"""

import importlib
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hostelry.containers.code.author_module import AuthorModule
from hostelry.containers.code.code_channel import CodeChannel, ServerGoneError, run_as_child
from hostelry.containers.code.confinement import Confinement, ConfinementError, confine
from hostelry.containers.code.messages import (
    At,
    Broken,
    Handle,
    LoadCode,
    Loaded,
    Raised,
    Replied,
    Where,
)

FUNCTION = "function"  # of a call's properties
Functions = dict[str, Callable[[Any], Any]]


class FunctionLoadError(Exception):
    """A function cannot be used; the message has the reason for its author."""


def load_functions(folder: str, names: tuple[str, ...]) -> Functions:
    """The functions `MODULE:NAME` of the modules below `folder`. Raises FunctionLoadError."""
    sys.path.insert(0, folder)
    found: Functions = {}
    for name in names:
        module, _, attribute = name.partition(":")
        if not is_file_of(folder, module):
            raise FunctionLoadError(f"{name}: there is no {module.replace('.', '/')}.py in code/")
        try:
            function = getattr(importlib.import_module(module), attribute, None)
        except (Exception, SystemExit) as error:
            text = AuthorModule(folder).described(error)
            raise FunctionLoadError(f"{name}: {text}") from error
        if not callable(function):
            raise FunctionLoadError(f"{name}: {module} has no function {attribute}")
        found[name] = function
    return found


def is_file_of(folder: str, module: str) -> bool:
    """Whether the module is a file or a package of the folder, not one of Python's own."""
    path = Path(folder, *module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def called(author: AuthorModule, functions: Functions, call: Handle) -> Replied | Raised:
    """The reply to one call."""
    (_, text), *_ = call.contents
    try:
        value = functions[call.properties[FUNCTION]](msgspec.json.decode(text))
        return Replied(call.id, msgspec.json.encode(plain(value)))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the author's, reported to the client
        return Raised(call.id, author.described(error))


def plain(value: Any) -> Any:
    """The value with arrays and scalars of NumPy as lists and numbers."""
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(it) for key, it in value.items()}
    return [plain(it) for it in value] if isinstance(value, list | tuple) else value


def read_messages(
    channel: CodeChannel, author: AuthorModule, calls: "queue.SimpleQueue[Handle]"
) -> None:
    """Pass calls to the main thread until the server closes its end, then exit."""
    while True:
        try:
            message = channel.receive()
            if isinstance(message, Where):
                channel.send(At(message.id, author.main_thread_place()))
            elif isinstance(message, Handle):
                calls.put(message)
        except (ServerGoneError, OSError):
            os._exit(0)


def run_functions(channel: CodeChannel) -> int:
    """Load and serve; the exit status."""
    start = channel.receive()
    if not isinstance(start, LoadCode):
        raise TypeError(f"the first message is {type(start).__name__}, not LoadCode")
    try:
        if start.readable:
            confine(Confinement(readable=start.readable, writable=start.writable))
        os.chdir(start.folder)
        functions = load_functions(start.folder, tuple(start.options))
    except (FunctionLoadError, ConfinementError, OSError) as error:
        channel.send(Broken(str(error)))
        return 1
    author = AuthorModule(start.folder)
    calls: queue.SimpleQueue[Handle] = queue.SimpleQueue()
    reading = threading.Thread(target=read_messages, args=(channel, author, calls), daemon=True)
    reading.start()
    channel.send(Loaded(tuple(functions)))
    while True:
        channel.send(called(author, functions, calls.get()))


if __name__ == "__main__":
    raise SystemExit(run_as_child(run_functions))
