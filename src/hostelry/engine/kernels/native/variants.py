"""The instruction sets that the C++ is compiled for. setup.py reads it too: stdlib only."""

import hashlib
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parent / "cpp"
_X86 = ("x86_64", "amd64")


class LibraryVariant(NamedTuple):
    """One library. `machines` empty: any. `cpu_flags` as Linux names them in /proc/cpuinfo."""

    name: str
    machines: tuple[str, ...]
    cpu_flags: frozenset[str]
    compiler_flags: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """The library's name in this folder."""
        return f"lib{self.name}.so"

    def runs_on(self, machine: str, cpu_flags: frozenset[str]) -> bool:
        """Whether a CPU of that architecture and those flags executes it."""
        return self.fits(machine) and self.cpu_flags <= cpu_flags

    def fits(self, machine: str) -> bool:
        """Whether it can be compiled for that architecture."""
        return not self.machines or machine.lower() in self.machines


_AVX2 = frozenset({"avx2", "fma", "f16c"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vbmi", "avx512_bf16"}
_AVX2_FLAGS = ("-mavx2", "-mfma", "-mf16c")
_AVX512_FLAGS = (
    *_AVX2_FLAGS,
    "-mavx512f",
    "-mavx512bw",
    "-mavx512vl",
    "-mavx512dq",
    "-mavx512vbmi",
    "-mavx512bf16",
)

VARIANTS = (
    LibraryVariant(
        "avx512_amx",
        _X86,
        _AVX512 | {"amx_tile", "amx_bf16"},
        (*_AVX512_FLAGS, "-mamx-tile", "-mamx-bf16"),
    ),
    LibraryVariant("avx512_bf16", _X86, _AVX512, _AVX512_FLAGS),
    LibraryVariant("avx2", _X86, _AVX2, _AVX2_FLAGS),
    LibraryVariant("portable", (), frozenset(), ()),
)
"""The fastest first."""


def fingerprint(sources: Path = SOURCES) -> str:
    """A hash of the C++ sources, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted(sources.iterdir()):
        if path.suffix in (".h", ".cpp"):
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]
