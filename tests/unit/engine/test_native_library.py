"""The choice of a library, the reasons without a library, and builds, which are optional."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.cases import case, cases

from hostelry.engine.kernels.native.library import (
    NativeHost,
    NativeLibrary,
    NativeUnavailableError,
    available_variants,
    read_cpu_flags,
    why_unavailable,
)
from hostelry.engine.kernels.native.variants import SOURCES, VARIANTS, fingerprint

ROOT = Path(__file__).resolve().parents[3]
NATIVE = Path("src/hostelry/engine/kernels/native")
# Relevant names of /proc/cpuinfo on a Sapphire Rapids server.
AVX2 = {"sse2", "ssse3", "fma", "sse4_1", "sse4_2", "avx", "f16c", "avx2", "bmi2"}
AVX512 = {*AVX2, "avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl", "avx512_bf16"}
AVX512 |= {"avx512vbmi", "avx512_vbmi2", "avx512_vnni"}
AMX = AVX512 | {"amx_bf16", "avx512_fp16", "amx_tile", "amx_int8"}


def host(
    folder: Path,
    *,
    machine: str = "x86_64",
    cpu_flags: set[str] | None = None,
    sources: Path | None = None,
    permit_tiles: Callable[[], bool] = lambda: True,
) -> NativeHost:
    return NativeHost(
        machine=machine,
        cpu_flags=frozenset(cpu_flags if cpu_flags is not None else AMX),
        folder=folder,
        sources=sources or folder / "no-sources",
        permit_tiles=permit_tiles,
    )


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with all libraries: this machine's portable one by each name."""
    portable = NativeHost.current().folder / "libportable.so"
    for variant in VARIANTS:
        shutil.copy(portable, tmp_path / variant.file_name)
    return tmp_path


@cases(
    "machine, cpu_flags, expected",
    case("Sapphire Rapids", "x86_64", AMX, ("avx512_amx", "avx512_bf16", "avx2", "portable")),
    case("Zen 5", "x86_64", AVX512, ("avx512_bf16", "avx2", "portable")),
    case("by its other name", "AMD64", AVX512, ("avx512_bf16", "avx2", "portable")),
    case("Haswell to Zen 3", "x86_64", AVX2, ("avx2", "portable")),
    case("AVX-512 without bf16", "x86_64", AVX512 - {"avx512_bf16"}, ("avx2", "portable")),
    case("no tiles", "x86_64", AMX - {"amx_bf16"}, ("avx512_bf16", "avx2", "portable")),
    case("an old one", "x86_64", {"sse2"}, ("portable",)),
    case("a system that says nothing", "x86_64", set(), ("portable",)),
    case("Arm", "aarch64", {"asimd", "bf16"}, ("portable",)),
    case("Arm whatever it says", "arm64", AMX, ("portable",)),
)
def test_the_libraries_that_a_cpu_runs_fastest_first(
    installed: Path, machine: str, cpu_flags: set[str], expected: tuple[str, ...]
) -> None:
    found = host(installed, machine=machine, cpu_flags=cpu_flags)
    assert available_variants(found) == expected
    assert why_unavailable(found) is None
    assert NativeLibrary.load(host=found).variant == expected[0]


def test_tiles_are_not_used_where_the_system_refuses_them(installed: Path) -> None:
    refused = host(installed, permit_tiles=lambda: False)
    assert available_variants(refused) == ("avx512_bf16", "avx2", "portable")
    assert NativeLibrary.load(host=refused).variant == "avx512_bf16"
    with pytest.raises(NativeUnavailableError, match="system refuses AMX"):
        NativeLibrary.load("avx512_amx", refused)


def test_tiles_are_asked_for_only_where_there_are_some(installed: Path) -> None:
    def never() -> bool:
        raise AssertionError("this CPU has no tiles to ask for")

    older = host(installed, cpu_flags=AVX512, permit_tiles=never)
    assert available_variants(older)[0] == "avx512_bf16"


def test_a_library_that_was_not_built_leaves_the_next(installed: Path) -> None:
    (installed / "libavx512_amx.so").unlink()
    (installed / "libavx512_bf16.so").unlink()
    assert NativeLibrary.load(host=host(installed)).variant == "avx2"
    with pytest.raises(NativeUnavailableError, match=r"not built: .*libavx512_amx.so is missing"):
        NativeLibrary.load("avx512_amx", host(installed))


def test_the_reason_that_nothing_is_built_has_a_remedy(tmp_path: Path) -> None:
    reason = why_unavailable(host(tmp_path))
    assert reason is not None
    assert "not built" in reason
    assert "make install" in reason
    with pytest.raises(NativeUnavailableError, match="not built"):
        NativeLibrary.load(host=host(tmp_path))


@cases(
    "content",
    case("empty", b""),
    case("cut off", b"\x7fELF and then nothing of use"),
    case("something else", b"#!/bin/sh\nexit 1\n"),
)
def test_a_broken_library_is_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "libportable.so").write_bytes(content)
    broken = host(tmp_path)
    assert available_variants(broken) == ()
    assert "portable: cannot be loaded" in (why_unavailable(broken) or "")
    with pytest.raises(NativeUnavailableError, match="portable cannot be used: cannot be loaded"):
        NativeLibrary.load("portable", broken)


def test_a_library_without_our_functions_is_passed_over(tmp_path: Path) -> None:
    shutil.copy(msgspec._core.__file__, tmp_path / "libportable.so")
    assert "portable: cannot be loaded" in (why_unavailable(host(tmp_path)) or "")


def test_a_library_of_other_sources_is_passed_over(installed: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(SOURCES, changed)
    with (changed / "gemm.h").open("a") as file:
        file.write("// another line\n")
    stale = host(installed, sources=changed)
    assert available_variants(stale) == ()
    assert "built from other sources" in (why_unavailable(stale) or "")


def test_every_byte_and_name_of_the_sources_counts(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("one")
    (tmp_path / "b.cpp").write_text("two")
    before = fingerprint(tmp_path)
    (tmp_path / "notes.txt").write_text("no source")
    assert fingerprint(tmp_path) == before
    (tmp_path / "a.h").write_text("onet")
    (tmp_path / "b.cpp").write_text("wo")
    assert fingerprint(tmp_path) != before


def test_an_unknown_variant_is_refused_with_the_known_ones(installed: Path) -> None:
    with pytest.raises(NativeUnavailableError, match=r"no variant 'avx10'.*avx512_amx.*portable"):
        NativeLibrary.load("avx10", host(installed))


def test_a_variant_that_the_cpu_does_not_run_is_refused_with_what_it_lacks(installed: Path) -> None:
    with pytest.raises(NativeUnavailableError, match="needs CPU features amx_bf16, amx_tile"):
        NativeLibrary.load("avx512_amx", host(installed, cpu_flags=AVX512))
    with pytest.raises(NativeUnavailableError, match="and this is aarch64"):
        NativeLibrary.load("avx2", host(installed, machine="aarch64"))


@cases(
    "text, expected",
    case("x86", "processor\t: 0\nflags\t\t: fpu avx2 fma\n", {"fpu", "avx2", "fma"}),
    case("the first CPU", "flags\t\t: avx2\n\nprocessor : 1\nflags : avx2 amx_tile\n", {"avx2"}),
    case("Arm has other features", "Features\t: fp asimd\n", set()),
    case("flags of another thing", "vmx flags\t: vnmi\n", set()),
    case("no flags", "flags\t:\n", set()),
    case("nothing", "", set()),
)
def test_flags_are_read(tmp_path: Path, text: str, expected: set[str]) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert read_cpu_flags(tmp_path / "cpuinfo") == expected


def test_a_system_without_the_file_has_no_flags(tmp_path: Path) -> None:
    assert read_cpu_flags(tmp_path / "cpuinfo") == frozenset()


def test_this_machines_libraries_say_what_they_are() -> None:
    for name in available_variants():
        functions = NativeLibrary.load(name).functions
        assert functions.hostelry_variant().decode() == name
        assert functions.hostelry_fingerprint().decode() == fingerprint()


def build(folder: Path, compiler: str) -> subprocess.CompletedProcess[str]:
    """Run `setup.py build_ext --inplace` with this compiler, in a copy of its input files."""
    shutil.copy(ROOT / "setup.py", folder)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "hostelry"\nversion = "0"\n'
        '[tool.setuptools.packages.find]\nwhere = ["src"]\n'
    )
    (folder / NATIVE).mkdir(parents=True)
    shutil.copy(ROOT / NATIVE / "variants.py", folder / NATIVE)
    (folder / NATIVE / "cpp").mkdir()
    (folder / NATIVE / "cpp" / "one.cpp").write_text('extern "C" int one() { return 1; }\n')
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, "CXX": compiler},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_compiler_that_fails_does_not_fail_the_install(tmp_path: Path) -> None:
    done = build(tmp_path, "/bin/false")
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("*.so"))
    assert "goes on without this library" in done.stdout + done.stderr


def test_no_compiler_does_not_fail_the_install(tmp_path: Path) -> None:
    done = build(tmp_path, str(tmp_path / "no-such-compiler"))
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("*.so"))
    assert "no C++ compiler" in done.stdout + done.stderr


def test_a_compiler_too_old_for_one_set_builds_the_others(tmp_path: Path) -> None:
    compiler = tmp_path / "old-compiler"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *-mamx*) echo "unknown option -mamx-tile" >&2; exit 1;; esac\n'
        'while [ "$1" != "-o" ]; do shift; done\necho library > "$2"\n'
    )
    compiler.chmod(0o755)
    done = build(tmp_path, str(compiler))
    assert done.returncode == 0, done.stderr
    built = {path.name for path in (tmp_path / NATIVE).iterdir() if path.suffix == ".so"}
    fitting = {it.file_name for it in VARIANTS if it.fits(platform.machine())}
    assert built == fitting - {"libavx512_amx.so"}
