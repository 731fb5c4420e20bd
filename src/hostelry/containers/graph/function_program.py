"""The process of an archive's functions: `python -m hostelry.containers.graph.function_program`.

The main thread calls the functions, one after the other. Another thread reads messages, so that the
process can report the line at which a function hangs.
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
    Handle,
    LoadCode,
    Loaded,
    Raised,
    Replied,
    Where,
)

FUNCTION = "function"  # the property of a call with the function's name
Functions = dict[str, Callable[[Any], Any]]


class FunctionLoadError(Exception):
    """A function cannot be used. The message is for its author."""


def load_functions(folder: str, names: tuple[str, ...]) -> Functions:
    """Load the functions `MODULE:NAME` of modules below `folder`. Raises FunctionLoadError."""
    sys.path.insert(0, folder)
    functions: Functions = {}
    for name in names:
        module, _, attribute = name.partition(":")
        if not is_in_folder(folder, module):
            raise FunctionLoadError(f"{name}: there is no {module.replace('.', '/')}.py in code/")
        try:
            function = getattr(importlib.import_module(module), attribute, None)
        except (Exception, SystemExit) as error:
            text = AuthorModule(folder).describe(error)
            raise FunctionLoadError(f"{name}: {text}") from error
        if not callable(function):
            raise FunctionLoadError(f"{name}: {module} has no function {attribute}")
        functions[name] = function
    return functions


def is_in_folder(folder: str, module: str) -> bool:
    """True if the module is a file or a package of the folder, not of Python."""
    path = Path(folder, *module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def call_function(author: AuthorModule, functions: Functions, call: Handle) -> Replied | Raised:
    """Run one call."""
    (_, text), *_ = call.contents
    try:
        value = functions[call.properties[FUNCTION]](msgspec.json.decode(text))
        return Replied(call.id, msgspec.json.encode(to_plain(value)))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the author's, reported to the client
        return Raised(call.id, author.describe(error))


def to_plain(value: Any) -> Any:
    """The value with lists and numbers in place of NumPy's arrays and scalars."""
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: to_plain(it) for key, it in value.items()}
    return [to_plain(it) for it in value] if isinstance(value, list | tuple) else value


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
    """Load the functions and serve. Returns the exit status."""
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
        channel.send(call_function(author, functions, calls.get()))


if __name__ == "__main__":
    raise SystemExit(run_as_child(run_functions))
