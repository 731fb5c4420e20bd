"""Functions of the archive, in separate processes that the kernel confines.

The processes read code/ of the model and Python, write nothing, and reach no network, no other
process and none of the server's keys. The next call replaces a process that hangs or died.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hostelry.base.errors import HostelryError, TerminalError
from hostelry.containers.code.code_process import (
    CodeError,
    CodeLaunch,
    CodeProcess,
    code_environment,
    readable_places,
    start_code,
)
from hostelry.containers.code.confinement import ConfinementError, check_possible
from hostelry.containers.code.messages import Handle, LoadCode
from hostelry.containers.graph.function_program import FUNCTION

PROGRAM = "hostelry.containers.graph.function_program"
POLICY = "HOSTELRY_CUSTOM_CODE"
LOAD_LIMIT_S = 60.0
DEFAULT_LIMIT_S = 30.0
MAX_PROCESSES = 4

LOG = logging.getLogger(__name__)


class FunctionError(HostelryError):
    """A function failed, hung or cannot be loaded. The message has its line."""


class Functions(Protocol):
    """Calls functions of the archive."""

    async def call(self, function: str, value: Any, limit_s: float) -> Any:
        """The function's result for a JSON value. Raises FunctionError."""
        ...


class FunctionProcesses:
    """`num_processes` processes with the functions `names` of `code_dir`. Call `start` first."""

    def __init__(
        self,
        code_dir: Path,
        names: tuple[str, ...],
        environment: Mapping[str, str],
        num_processes: int,
    ) -> None:
        self._names = names
        self._launch = build_launch(code_dir, names, environment) if names else None
        self._processes: list[CodeProcess | None] = [None] * min(num_processes, MAX_PROCESSES)
        self._calls = [0] * len(self._processes)
        self._starting = [asyncio.Lock() for _ in self._processes]

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the living processes."""
        return tuple(it.pid for it in self._processes if it is not None and it.is_alive)

    async def start(self) -> None:
        """Load the functions in the first process. Raises FunctionError."""
        if self._names:
            await self._get_process(0)

    async def call(self, function: str, value: Any, limit_s: float) -> Any:
        """The function's result for a JSON value. Raises FunctionError."""
        try:
            text = msgspec.json.encode(value)
        except (TypeError, RecursionError) as error:
            raise FunctionError(f"{function}: the input is not JSON: {error}") from None
        number = self._calls.index(min(self._calls))  # the process with the fewest calls
        self._calls[number] += 1
        try:
            process = await self._get_process(number)
            properties = {FUNCTION: function}
            reply = await process.call(
                lambda call: Handle(call, properties, (("input", text),)), function, limit_s
            )
            return msgspec.json.decode(reply.body)
        except (CodeError, msgspec.DecodeError) as error:
            raise FunctionError(str(error)) from None
        finally:
            self._calls[number] -= 1

    async def close(self) -> None:
        """End the processes."""
        processes = [it for it in self._processes if it is not None]
        await asyncio.gather(*(it.close() for it in processes), return_exceptions=True)

    async def _get_process(self, number: int) -> CodeProcess:
        assert self._launch is not None, "the plan has functions"
        async with self._starting[number]:
            process = self._processes[number]
            if process is None or not process.is_alive:
                if process is not None:
                    await process.close()
                try:
                    process = await start_code(self._launch)
                except CodeError as error:
                    raise FunctionError(str(error)) from None
                self._processes[number] = process
            return process


def build_launch(
    code_dir: Path, names: tuple[str, ...], environment: Mapping[str, str]
) -> CodeLaunch:
    """The launch of a process of functions. Raises TerminalError if they may not run here."""
    policy = environment.get(POLICY) or "confined"
    if policy not in ("confined", "trusted"):
        raise TerminalError(
            f"graph.yaml names functions ({', '.join(names)}), and {POLICY} is {policy[:40]!r}: "
            "the operator allows them with confined (the default) or trusted"
        )
    is_confined = policy == "confined"
    if is_confined:
        try:
            check_possible()
        except ConfinementError as error:
            raise TerminalError(
                f"graph.yaml names functions ({', '.join(names)}), which cannot run confined: "
                f"{error}. {POLICY}=trusted for `hostelry up` lets them run as the copy's own user"
            ) from error
    folder = str(code_dir)
    load = LoadCode(
        folder=folder,
        model_dir=folder,
        tokenizer_folder=folder,
        options=dict.fromkeys(names, ""),
        readable=readable_places(code_dir, code_dir) if is_confined else (),
    )
    variables = code_environment(
        environment, is_adapter=True, is_confined=is_confined, scratch=None
    )
    return CodeLaunch(
        author="code/",
        load=load,
        environment=variables,
        load_limit_s=LOAD_LIMIT_S,
        program=PROGRAM,
    )
