"""Builds the engine's C++ kernels, one library for each instruction set (see `variants.py` there).

Rebuild while working on them: ``.venv/bin/python setup.py build_ext --inplace``.

They are optional: without a compiler, or where it is too old for one of the sets, installing goes
on and says so (``pip install -v`` shows it), and the engine computes with what there is.
"""

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

PACKAGE = "hostelry.engine.kernels.native"
FOLDER = Path("src", *PACKAGE.split("."))
WITHOUT = (
    "The install goes on without this library; with none at all the engine computes in plain "
    "torch, several times slower. To change that install g++, then hostelry again."
)
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Wno-unknown-warning-option",
    "-Wno-psabi",  # vectors passed between functions of one library
    "-Wno-uninitialized",  # gcc's own intrinsics, by design
    "-Wno-maybe-uninitialized",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    # A product and a sum are one operation where the source says fma and nowhere else, so that a
    # row's result does not depend on which instance of a template computed it.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
)


def load_variants():
    """The module of that name, by its path: importing it as usual would import torch."""
    spec = importlib.util.spec_from_file_location("variants", FOLDER / "variants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


variants = load_variants()


class BuildKernels(build_ext):
    """Compiles each library with one call of the C++ compiler."""

    def finalize_options(self):
        """Compile as many at once as there are CPUs."""
        super().finalize_options()
        self.parallel = True if self.parallel is None else self.parallel

    def get_ext_filename(self, fullname):
        """A plain library's name: what is built is no Python module."""
        *folders, name = fullname.split(".")
        return str(Path(*folders, f"{name}.so"))

    def build_extension(self, ext):
        """Compile one library unless it is newer than its sources."""
        output = Path(self.get_ext_fullpath(ext.name))
        if not self.force and is_newer(output, [*ext.sources, *ext.depends]):
            return
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = output.with_suffix(f".{os.getpid()}.partial")
        sources = [source for source in ext.sources if source.endswith(".cpp")]
        try:
            compile_library([*FLAGS, *ext.extra_compile_args, *sources, "-o", str(partial)])
            partial.replace(output)  # whoever has the former one in use keeps it
        finally:
            partial.unlink(missing_ok=True)
        print(f"built {output.name}")


def compile_library(arguments):
    """Run the compiler. Raises CompileError, upon which setuptools warns and goes on."""
    compiler = find_compiler()
    try:
        done = subprocess.run([*compiler, *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompileError(f"no C++ compiler: {error}. {WITHOUT}") from error
    if done.returncode != 0:
        raise CompileError(
            f"{' '.join(compiler)} failed ({done.returncode}): {done.stderr[:2000]}\n{WITHOUT}"
        )
    if done.stderr:
        print(done.stderr)


def find_compiler():
    """The command in $CXX, else the first of the usual names."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise CompileError(
        f"no C++ compiler found by the names c++, g++, clang++ (or in $CXX). {WITHOUT}"
    )


def is_newer(output, sources):
    """Whether `output` exists and none of `sources` was changed since."""
    if not output.exists():
        return False
    return all(Path(source).stat().st_mtime < output.stat().st_mtime for source in sources)


def extension(variant):
    """What setuptools is to build for one instruction set."""
    cpp = FOLDER / "cpp"
    return Extension(
        f"{PACKAGE}.{variant.file_name.removesuffix('.so')}",
        sources=[str(path) for path in sorted(cpp.glob("*.cpp"))],
        depends=[str(path) for path in (*sorted(cpp.glob("*.h")), FOLDER / "variants.py")]
        + ["setup.py"],
        extra_compile_args=[
            *variant.compiler_flags,
            f'-DHOSTELRY_VARIANT="{variant.name}"',
            f'-DHOSTELRY_FINGERPRINT="{variants.fingerprint(cpp)}"',
        ],
        language="c++",
        optional=True,
    )


setup(
    ext_modules=[
        extension(variant) for variant in variants.VARIANTS if variant.fits(platform.machine())
    ],
    cmdclass={"build_ext": BuildKernels},
)
