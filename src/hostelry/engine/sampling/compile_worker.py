"""Compilation of structures in a separate process, which can be killed.

A hostile structure can compute for hours, take all memory or crash the library. The process takes
one structure at a time, within limits of time and memory, and is replaced when it exceeds one. Its
messages are frames: a four-byte big-endian length and that many bytes of JSON.
"""

import contextlib
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import IO

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.json import decode
from hostelry.base.system import readable
from hostelry.engine.request import Structure
from hostelry.engine.sampling.grammar import GrammarError
from hostelry.engine.sampling.xgrammar_binding import (
    CompiledStructure,
    Compiler,
    ReadTokenizer,
    load_vocabulary,
    read_tokenizer,
)

_LENGTH = struct.Struct(">I")
_READ_BYTES = 1 << 16


class CompileLimits(msgspec.Struct, frozen=True):
    """Bounds on compiling one structure.

    `start_s` bounds the start of the process. `compiled_bytes` bounds the result, and with it the
    time of a step.
    """

    compile_s: float = 5.0
    start_s: float = 60.0
    memory_bytes: int = 2 << 30
    compiled_bytes: int = 10 << 20


class _Answer(msgspec.Struct, frozen=True):
    """An answer of the process: its tokenizer at the start, a compiled structure, or an error."""

    compiled: str = ""
    error: str = ""


class _BrokenError(Exception):
    """The process ended or took too long."""


class CompileWorker:
    """The process, started on first use.

    Only one thread at a time. It also reads the model's tokenizer: in the engine's process,
    creating the objects of a large vocabulary would hold the interpreter's lock, and delay steps,
    for tens of milliseconds.
    """

    def __init__(self, model: "TokenizerSource", limits: CompileLimits) -> None:
        self._model = model
        self._limits = limits
        self._tokenizer: ReadTokenizer | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, if the process runs."""
        return self._process.pid if self._process else None

    def compile(self, structure: Structure) -> CompiledStructure:
        """Compile the structure. Raises GrammarError if that fails, or exceeds the limits."""
        try:
            process = self._process or self._start()
            answer = self._ask(process, structure, self._limits.compile_s)
        except TimeoutError:
            self.close()
            raise GrammarError(
                f"compiling took more than {self._limits.compile_s:g} s; make the structure simpler"
            ) from None
        except (_BrokenError, OSError) as error:
            self.close()
            raise GrammarError(
                f"compiling ended the process that did it ({error}), for instance by more than "
                f"{self._limits.memory_bytes >> 20} MiB of memory; make the structure simpler"
            ) from error
        if answer.error:
            raise GrammarError(answer.error)
        if len(answer.compiled) > self._limits.compiled_bytes:
            raise GrammarError(
                f"the structure compiles to {len(answer.compiled)} bytes; at most "
                f"{self._limits.compiled_bytes}: shorten its repetitions"
            )
        assert self._tokenizer is not None
        return CompiledStructure.read(answer.compiled, self._tokenizer)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "hostelry.engine.sampling.compile_worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        setup = _StartMessage(self._model, self._limits.memory_bytes, self._limits.compile_s)
        answer = self._ask(process, setup, self._limits.start_s)
        if answer.error:
            self.close()
            raise GrammarError(answer.error)
        if self._tokenizer is None:
            self._tokenizer = read_tokenizer(answer.compiled)
        return process

    def _ask(
        self, process: subprocess.Popen[bytes], message: "Structure | _StartMessage", limit_s: float
    ) -> _Answer:
        assert process.stdin is not None
        assert process.stdout is not None
        deadline = monotonic_s() + limit_s
        _write_frame(process.stdin, msgspec.json.encode(message))
        head = _read_until(process.stdout, _LENGTH.size, deadline)
        body = _read_until(process.stdout, _LENGTH.unpack(head)[0], deadline)
        return decode(body, _Answer)


class TokenizerSource(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of a model's tokenizer, and what `load_vocabulary` needs of the model."""

    folder: str
    vocab_size: int
    end_token_ids: tuple[int, ...]


class _StartMessage(msgspec.Struct, frozen=True):
    """The first message to the process."""

    model: TokenizerSource
    memory_bytes: int
    compile_s: float


def _write_frame(stream: IO[bytes], body: bytes) -> None:
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def _read_until(stream: IO[bytes], num_bytes: int, deadline: float) -> bytes:
    """Exactly that many bytes. Raises TimeoutError, or _BrokenError at the stream's end."""
    read = bytearray()
    while len(read) < num_bytes:
        if not readable(stream.fileno(), within_s=max(0.0, deadline - monotonic_s())):
            raise TimeoutError
        data = stream.raw.read(min(_READ_BYTES, num_bytes - len(read)))  # type: ignore[attr-defined]
        if not data:
            raise _BrokenError("its output ended")
        read += data
    return bytes(read)


def _read_frame(stream: IO[bytes]) -> bytes | None:
    """The next frame. None at the stream's end."""
    head = stream.read(_LENGTH.size)
    return stream.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else None


def _limit_cpu(compile_s: float) -> None:
    """Have the kernel kill this process if the next structure takes twice its time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit_s = int(used.ru_utime + used.ru_stime + 2 * compile_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Compile the structures in `requests` until its end."""
    body = _read_frame(requests)
    if body is None:
        return
    setup = decode(body, _StartMessage)
    model = setup.model
    try:
        vocabulary = load_vocabulary(
            Path(model.folder), vocab_size=model.vocab_size, end_token_ids=model.end_token_ids
        )
        resource.setrlimit(resource.RLIMIT_AS, (setup.memory_bytes, setup.memory_bytes))
        compiler = Compiler(vocabulary)
    except (GrammarError, RuntimeError) as error:
        _write_frame(answers, msgspec.json.encode(_Answer(error=str(error))))
        return
    _write_frame(answers, msgspec.json.encode(_Answer(compiler.tokenizer_json())))
    while (body := _read_frame(requests)) is not None:
        _limit_cpu(setup.compile_s)
        try:
            answer = _Answer(compiler.compile(decode(body, Structure)))
        except GrammarError as error:
            answer = _Answer(error=str(error))
        _write_frame(answers, msgspec.json.encode(answer))


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
