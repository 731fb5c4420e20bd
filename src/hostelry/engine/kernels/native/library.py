"""Choice of the compiled library that this CPU runs fastest, and access to its functions.

The flags that the CPU reports decide. A process may load several libraries.
"""

import ctypes
import functools
import mmap
import platform
import weakref
from collections.abc import Callable
from ctypes import c_char_p, c_double, c_int, c_size_t, c_ssize_t, c_void_p
from pathlib import Path
from typing import Any

import msgspec
import numpy
from numpy.typing import NDArray

from hostelry.base.errors import HostelryError
from hostelry.engine.kernels.native.variants import SOURCES, VARIANTS, LibraryVariant, fingerprint

LINE_BYTES = 64
CHUNK_BYTES = 64 * 2**20


class LineMemory:
    """An allocator of consecutive arrays.

    Memory that is never written costs nothing. Each step reads all weights from end to end. Huge
    pages save an address lookup for every 4 KiB.
    """

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._free: NDArray[numpy.uint8] = numpy.zeros(0, numpy.uint8)

    def take(self, num_bytes: int) -> NDArray[numpy.uint8]:
        """A zeroed array of that size, which keeps its memory alive."""
        rounded = -(-num_bytes // LINE_BYTES) * LINE_BYTES
        if rounded > len(self._free):
            self._free = allocate_large_pages(max(rounded, self._chunk_bytes))
        taken, self._free = self._free[:num_bytes], self._free[rounded:]
        return taken


def allocate_large_pages(num_bytes: int) -> NDArray[numpy.uint8]:
    """Zeroed memory that begins at a page, large ones if the system gives them."""
    memory = mmap.mmap(-1, max(num_bytes, 1))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return numpy.frombuffer(memory, numpy.uint8)[:num_bytes]


_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "hostelry_variant": (c_char_p, ()),
    "hostelry_fingerprint": (c_char_p, ()),
    "hostelry_pool_new": (c_void_p, (c_int, c_int)),
    "hostelry_pool_free": (None, (c_void_p,)),
    "hostelry_pool_active": (c_int, (c_void_p,)),
    "hostelry_crew_sizes": (None, (c_int, c_int, c_void_p, c_void_p, c_void_p)),
    "hostelry_pool_overhead_ns": (c_double, (c_void_p, c_int)),
    "hostelry_packed_bytes": (c_size_t, (c_int, c_int, c_int)),
    "hostelry_prepared_bytes": (c_size_t, (c_int, c_int, c_int)),
    "hostelry_pack": (
        None,
        (c_void_p, c_int, c_int, c_void_p, c_ssize_t, c_int, c_int, c_void_p, c_void_p),
    ),
    "hostelry_gemm": (
        None,
        (c_void_p, c_void_p, c_void_p, c_ssize_t, c_int, c_void_p, c_ssize_t, c_int, c_void_p),
    ),
    "hostelry_decoder_new": (c_void_p, (c_void_p, c_void_p)),
    "hostelry_decoder_free": (None, (c_void_p,)),
    "hostelry_decoder_forward": (None, (c_void_p, c_void_p, c_void_p)),
    "hostelry_decoder_seconds": (ctypes.POINTER(c_double), (c_void_p,)),
}
"""Result and arguments of every exported function (cpp/exports.h, cpp/decoder.cpp)."""

_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18


class NativeUnavailableError(HostelryError):
    """No compiled library, or not the requested one, can be used here."""


def _permit_tiles() -> bool:
    """Request tile registers (AMX) from the kernel, as Linux demands before their first use."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        answer = libc.syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA)
    except (OSError, AttributeError):
        return False
    return bool(answer == 0)


class NativeHost(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a machine that decide which library it uses.

    `cpu_flags` are as in /proc/cpuinfo, empty on a system without that file. `folder` holds the
    libraries, `sources` the sources that they must be built from. `permit_tiles` requests AMX.
    """

    machine: str
    cpu_flags: frozenset[str]
    folder: Path
    sources: Path = SOURCES
    permit_tiles: Callable[[], bool] = _permit_tiles

    @classmethod
    @functools.cache
    def current(cls) -> "NativeHost":
        """This machine."""
        return cls(
            machine=platform.machine(),
            cpu_flags=read_cpu_flags(Path("/proc/cpuinfo")),
            folder=Path(__file__).parent,
        )


def read_cpu_flags(path: Path) -> frozenset[str]:
    """The flags of the first CPU in a file like /proc/cpuinfo. Empty without the file."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, flags = line.partition(":")
        if name.strip() == "flags":
            return frozenset(flags.split())
    return frozenset()


def available_variants(host: NativeHost | None = None) -> tuple[str, ...]:
    """Names of the libraries that are built and run on this CPU, the fastest first."""
    host = host or NativeHost.current()
    return tuple(it.name for it in VARIANTS if _find_obstacle(it, host) is None)


def why_unavailable(host: NativeHost | None = None) -> str | None:
    """Why no library can be used, and the remedy. None if one can be used."""
    host = host or NativeHost.current()
    if available_variants(host):
        return None
    if not any((host.folder / it.file_name).exists() for it in VARIANTS):
        return (
            "the C++ kernels are not built, so that products, attention and LoRA run on plain "
            "torch, several times slower; install a C++17 compiler (g++ or clang++) and install "
            "hostelry again (`make install` in a checkout)"
        )
    reasons = "; ".join(f"{it.name}: {_find_obstacle(it, host)}" for it in VARIANTS)
    return (
        "none of the built C++ kernels can be used, so that products, attention and LoRA run on "
        f"plain torch, several times slower; install hostelry again (`make install`): {reasons}"
    )


def _find_obstacle(variant: LibraryVariant, host: NativeHost) -> str | None:
    """Why a library cannot be used. None if it can."""
    path = host.folder / variant.file_name
    if not variant.runs_on(host.machine, host.cpu_flags):
        return f"needs {_needs(variant, host)}"
    if not path.exists():
        return f"not built: {path} is missing"
    if "amx_tile" in variant.cpu_flags and not host.permit_tiles():
        return "the system refuses AMX to this process"
    return _find_load_obstacle(path, _read_fingerprint(host.sources))


def _needs(variant: LibraryVariant, host: NativeHost) -> str:
    if not variant.fits(host.machine):
        return f"a CPU of type {' or '.join(variant.machines)}, and this is {host.machine}"
    return "CPU features " + ", ".join(sorted(variant.cpu_flags - host.cpu_flags))


@functools.cache
def _read_fingerprint(sources: Path) -> str | None:
    """The fingerprint of the installed sources. None if only the libraries are installed."""
    return fingerprint(sources) if sources.is_dir() else None


@functools.cache
def _find_load_obstacle(path: Path, wanted: str | None) -> str | None:
    try:
        functions = _load(path)
    except (OSError, AttributeError) as error:
        return f"cannot be loaded: {error}"
    found = functions.hostelry_fingerprint().decode()
    if wanted is not None and found != wanted:
        return f"built from other sources ({found}) than are installed ({wanted})"
    return None


@functools.cache
def _load(path: Path) -> ctypes.CDLL:
    """The library with its functions declared.

    Raises OSError, or AttributeError for a missing one.
    """
    functions = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(functions, name)
        function.restype = result
        function.argtypes = arguments
    return functions


class NativeLibrary:
    """One loaded library.

    `functions` has the functions of cpp/exports.h. `memory` is for its weights.
    """

    def __init__(self, variant: str, functions: ctypes.CDLL) -> None:
        self.variant = variant
        self.functions = functions
        self.memory = LineMemory()

    @classmethod
    def load(cls, variant: str | None = None, host: NativeHost | None = None) -> "NativeLibrary":
        """The fastest library for this CPU, or the one of that name.

        Raises NativeUnavailableError, with the reason, if it cannot be used.
        """
        host = host or NativeHost.current()
        if variant is None:
            variant = next((it.name for it in VARIANTS if _find_obstacle(it, host) is None), None)
        if variant is None:
            raise NativeUnavailableError(why_unavailable(host) or "no library can be used")
        wanted = next((it for it in VARIANTS if it.name == variant), None)
        if wanted is None:
            known = ", ".join(it.name for it in VARIANTS)
            raise NativeUnavailableError(f"there is no variant {variant!r}; the variants: {known}")
        obstacle = _find_obstacle(wanted, host)
        if obstacle is not None:
            raise NativeUnavailableError(f"the variant {variant} cannot be used: {obstacle}")
        return cls(variant, _load(host.folder / wanted.file_name))


class NativeThreads:
    """The thread pool of the library's functions, ended with this object.

    `num_threads` includes the calling thread. With `pin` and as many threads as CPUs, each other
    thread is bound to its own CPU while all compute. One call at a time.
    """

    def __init__(self, library: NativeLibrary, num_threads: int, *, pin: bool = False) -> None:
        if num_threads < 1:
            raise ValueError(f"num_threads is {num_threads}; at least one thread computes")
        self.library = library
        self.handle: int = library.functions.hostelry_pool_new(num_threads, int(pin))
        self._end = weakref.finalize(self, library.functions.hostelry_pool_free, self.handle)

    def close(self) -> None:
        """End the threads. The object is unusable afterwards."""
        self._end()

    @property
    def num_active(self) -> int:
        """Threads that compute now. Fewer while other processes compete for the CPUs."""
        return int(self.library.functions.hostelry_pool_active(self.handle))

    def measure_overhead_s(self, repeats: int = 1000) -> float:
        """Mean seconds of `repeats` distributions of empty work."""
        took_ns: float = self.library.functions.hostelry_pool_overhead_ns(self.handle, repeats)
        return took_ns * 1e-9
