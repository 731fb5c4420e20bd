"""Compiler of requests' structures: checks, compilation in another process, and a cache."""

import weakref
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from hostelry.base.json import decode
from hostelry.engine.request import Structure
from hostelry.engine.sampling.compile_worker import (
    CompileLimits,
    CompileWorker,
    TokenizerSource,
)
from hostelry.engine.sampling.grammar import GrammarError
from hostelry.engine.sampling.json_schema import rewrite_json_schema, rewrite_structural_tag
from hostelry.engine.sampling.xgrammar_binding import CompiledStructure, check_installed

MAX_CHOICES = 1024


class StructureLimits(msgspec.Struct, frozen=True):
    """Bounds on structures and on the cache of compiled ones.

    `text_bytes` is of a structure in the request, `tag_bytes` of one that joins several,
    `regex_bytes` of a pattern.
    """

    text_bytes: int = 64 << 10
    tag_bytes: int = 512 << 10
    regex_bytes: int = 4 << 10
    num_waiting: int = 16
    num_kept: int = 256
    kept_bytes: int = 128 << 20
    compiling: CompileLimits = msgspec.field(default_factory=CompileLimits)


class StructureCompiler:
    """Compiled structures of one model, for the engine's thread.

    Another process compiles, so that `submit` returns at once. Results and errors are cached by
    content. The least recently used is evicted first.

        a structure was submitted before, and   result
        --------------------------------------  ------------------------------------------------
        is compiled, or refused                 the same result again
        is being compiled                       the same future
        failed for another reason               compiled again
        no: it fails a check                    GrammarError at once
        no: `num_waiting` others wait           GrammarError at once. The caller may retry
        no: otherwise                           compiled after those submitted before
    """

    def __init__(
        self,
        folder: Path,
        *,
        vocab_size: int,
        end_token_ids: Sequence[int],
        limits: StructureLimits | None = None,
    ) -> None:
        self._model = TokenizerSource(
            folder=str(folder), vocab_size=vocab_size, end_token_ids=tuple(end_token_ids)
        )
        self._limits = limits or StructureLimits()
        self._known: OrderedDict[Structure, Future[CompiledStructure]] = OrderedDict()
        self._bench: _Bench | None = None

    def submit(self, structure: Structure) -> Future[CompiledStructure]:
        """A future of the compiled structure.

        Its `result` may raise GrammarError. Raises GrammarError at once for a structure that fails
        the checks, for a missing library, and if too many are being compiled.
        """
        known = self._known.get(structure)
        if known is not None and not _is_transient(known):
            self._known.move_to_end(structure)
            return known
        kept = self._check_structure(structure)
        waiting = sum(not each.done() for each in self._known.values())
        if waiting >= self._limits.num_waiting:
            raise GrammarError(f"{waiting} structures are being compiled; try again later")
        if self._bench is None:
            self._bench = self._start_bench()
        future = self._bench.submit(kept)
        self._known[structure] = future
        self._forget()
        return future

    def compile(self, structure: Structure) -> CompiledStructure:
        """Compile the structure and wait for it. Raises GrammarError."""
        return self.submit(structure).result()

    def close(self) -> None:
        """End the process that compiles. Later structures start another process."""
        if self._bench is not None:
            self._bench.close()
        self._bench = None
        self._known.clear()

    def _check_structure(self, structure: Structure) -> Structure:
        """The structure in keywords that the library enforces. Raises GrammarError."""
        limits = self._limits
        size = len(structure.text.encode("utf-8", "replace"))
        own = {"regex": limits.regex_bytes, "structural_tag": limits.tag_bytes}
        most = own.get(structure.kind, limits.text_bytes)
        if size > most:
            raise GrammarError(f"the {structure.kind} has {size} bytes; at most {most}")
        if "\0" in structure.text:
            raise GrammarError(f"the {structure.kind} holds a null character")
        if structure.kind == "json_schema":
            return Structure("json_schema", rewrite_json_schema(structure.text))
        if structure.kind == "structural_tag":
            return Structure("structural_tag", rewrite_structural_tag(structure.text))
        if structure.kind == "choice":
            _check_choices(structure.text)
        elif structure.kind != "json_object" and not structure.text.strip():
            raise GrammarError(f"the {structure.kind} is empty")
        return structure

    def _start_bench(self) -> "_Bench":
        check_installed()
        bench = _Bench(CompileWorker(self._model, self._limits.compiling))
        weakref.finalize(self, bench.close)
        return bench

    def _forget(self) -> None:
        """Evict results beyond the bounds. Structures being compiled stay."""
        kept_bytes = sum(_get_size_bytes(each) for each in self._known.values())
        for structure, future in list(self._known.items()):
            within = len(self._known) <= self._limits.num_kept
            if within and kept_bytes <= self._limits.kept_bytes:
                return
            if future.done():
                kept_bytes -= _get_size_bytes(future)
                del self._known[structure]


class _Bench:
    """The thread that drives the compiling process."""

    def __init__(self, worker: CompileWorker) -> None:
        self._worker = worker
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="structures")

    def submit(self, structure: Structure) -> Future[CompiledStructure]:
        """Compile after those that were submitted before."""
        return self._thread.submit(self._worker.compile, structure)

    def close(self) -> None:
        """Drop what waits and end the process."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._worker.close()


def _check_choices(text: str) -> None:
    try:
        choices = decode(text, list[str])
    except msgspec.MsgspecError as error:
        raise GrammarError(f"the choice is no JSON list of texts: {error}") from error
    if not 0 < len(choices) <= MAX_CHOICES or not all(choices):
        raise GrammarError(
            f"the choice has {len(choices)} texts; 1 to {MAX_CHOICES}, and none of them empty"
        )


def _get_size_bytes(future: Future[CompiledStructure]) -> int:
    if not future.done() or future.cancelled() or future.exception() is not None:
        return 0
    return future.result().size_bytes


def _is_transient(future: Future[CompiledStructure]) -> bool:
    """Whether a retry may succeed: the process was stopped, or could not start."""
    if not future.done() or future.cancelled():
        return future.cancelled()
    error = future.exception()
    return error is not None and not isinstance(error, GrammarError)
