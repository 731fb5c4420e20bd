"""The recipes of frameworks' runtimes, by the versions of AWS's images. Pure.

Each has the framework's version and packages of the same time. For torch the first choice is the
build for CPUs, as in AWS's images for CPUs. PyPI has only the build for CUDA, which is five times
as large and also runs on CPUs. From torch 2.6, which changed the default of torch.load, the second
choice is a later version's build for CPUs.

Source: the Dockerfiles and requirements of AWS's containers, and the SDK's image_uris.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

TOOLKIT = "sagemaker-inference==1.10.1"
# Packages of AWS's images that scripts import, without the framework and the servers' own parts.
COMMON_PACKAGES = (TOOLKIT, "boto3", "requests")
ALGORITHM_PACKAGES = (
    *COMMON_PACKAGES, "flask", "joblib", "pandas", "protobuf", "psutil", "pyarrow",
    "python-dateutil", "pyyaml", "retrying", "scipy", "six",
)  # fmt: skip
TORCH_PACKAGES = (
    *COMMON_PACKAGES, "h5py", "opencv-python-headless", "packaging", "pandas", "pillow", "pyyaml",
    "scikit-learn", "scipy", "tqdm",
)  # fmt: skip
LATER_TORCH = "2.13.0"
LATER_TORCH_PYTHONS = ("3.11", "3.12", "3.13", "3.10")
FIRST_SAFE_LOAD = (2, 6)


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """The recipe of a runtime.

    packages: resolved together, or for vLLM installed one after another.
    removed: packages to remove afterwards. stand_in: a package that looks itself up as "vllm".
    at_start: a module of this package that the runtime's interpreter imports at its start.
    pythons: Python versions, best first. Without them it is the platform's interpreter.
    imports: the module that must be importable in the end.
    instead: the recipe if no index has these packages. lacks: a text with its shortcomings.
    """

    packages: Sequence[str]
    imports: str
    removed: Sequence[str] = ()
    stand_in: str | None = None
    at_start: str | None = None
    pythons: Sequence[str] = ()
    instead: "Recipe | None" = None
    lacks: str = ""

    @property
    def is_locked(self) -> bool:
        """True if all packages are resolved at once, and kept as a list with hashes."""
        return bool(self.pythons)


Devices = Mapping[str, Recipe]


def split_version(version: str) -> tuple[int, ...]:
    """A version as numbers, for comparisons."""
    return tuple(int(it) for it in version.split("."))


def scikit_learn(version: str, pythons: Sequence[str], *bounds: str) -> Devices:
    """A version of scikit-learn. `bounds` limit other packages to versions of the same time."""
    packages = (f"scikit-learn=={version}", *ALGORITHM_PACKAGES, *bounds)
    return {"cpu": Recipe(packages=packages, imports="sklearn", pythons=pythons)}


def xgboost(version: str, pythons: Sequence[str], *bounds: str) -> Devices:
    """A version of XGBoost. From 2.1 there is a separate package for CPUs."""
    companions = (*ALGORITHM_PACKAGES, "matplotlib", "pillow", *bounds)
    cuda = Recipe(packages=(f"xgboost=={version}", *companions), imports="xgboost", pythons=pythons)
    if split_version(version) < (2, 1):
        return {"cpu": cuda, "cuda": cuda}
    return {
        "cpu": replace(cuda, packages=(f"xgboost-cpu=={version}", *companions)),
        "cuda": cuda,
    }


def torch(version: str, pythons: Sequence[str], imports: str, *companions: str) -> Devices:
    """A version of torch with torchvision and `companions`."""
    numpy = "numpy<2" if split_version(version) < (2, 3) else "numpy"
    numpy = "numpy<1.24" if split_version(version) < (1, 13) else numpy
    rest = ("torchvision", numpy, *TORCH_PACKAGES, *companions)
    exact = Recipe(packages=(f"torch=={version}", *rest), imports=imports, pythons=pythons)
    second = exact
    if split_version(version) >= FIRST_SAFE_LOAD:
        second = Recipe(
            packages=(f"torch=={LATER_TORCH}+cpu", *rest),
            imports=imports,
            pythons=LATER_TORCH_PYTHONS,
            at_start="torchvision_ops",
            instead=exact,
            lacks=f"torch is {LATER_TORCH}, not {version}",
        )
    return {
        "cpu": replace(exact, packages=(f"torch=={version}+cpu", *rest), instead=second),
        "cuda": exact,
    }


def pytorch(version: str, *pythons: str) -> Devices:
    """A version of PyTorch."""
    return torch(version, pythons, "torchvision")


def hugging_face(version: str, torch_version: str, *pythons: str) -> Devices:
    """A version of transformers on a version of PyTorch."""
    companions: tuple[str, ...] = ("sentencepiece", "protobuf", "accelerate", "safetensors")
    if split_version(version) < (4, 26):
        companions += ("protobuf<3.21", "tokenizers<0.13", "huggingface-hub<0.24")
    return torch(
        torch_version, pythons, "transformers.pipelines", f"transformers=={version}", *companions
    )


def tensorflow(version: str, pythons: Sequence[str], *bounds: str) -> Devices:
    """A version of TensorFlow."""
    rest = (*COMMON_PACKAGES, *bounds)
    cpu = Recipe(
        packages=(f"tensorflow-cpu=={version}", *rest), imports="tensorflow", pythons=pythons
    )
    if split_version(version) < (2, 14):
        return {"cpu": cpu}
    return {
        "cpu": cpu,
        "cuda": replace(cpu, packages=(f"tensorflow[and-cuda]=={version}", *rest)),
    }


def autogluon(version: str, torch_version: str, *pythons: str) -> Devices:
    """A version of AutoGluon for tables, without torch if torch has no build for CPUs."""

    def build_recipe(extras: str, *more: str) -> Recipe:
        package = f"autogluon-tabular[{extras}]=={version}"
        packages = (package, *more, "typing_extensions", "setuptools<81", *COMMON_PACKAGES)
        return Recipe(packages=packages, imports="autogluon.tabular", pythons=pythons)

    trees = replace(build_recipe("catboost,lightgbm,xgboost"), lacks="it has no neural networks")
    return {"cpu": replace(build_recipe("all", f"torch=={torch_version}+cpu"), instead=trees)}


OLD_TENSORFLOW = ("protobuf<3.20", "numpy<1.24")
FRAMEWORKS: Mapping[str, Mapping[str, Devices]] = {
    "autogluon": {
        "1.0": autogluon("1.0.0", "2.0.1", "3.10", "3.11"),
        "1.1": autogluon("1.1.1", "2.3.1", "3.11", "3.10"),
        "1.2": autogluon("1.2", "2.5.1", "3.11", "3.12", "3.10"),
        "1.3": autogluon("1.3.0", "2.6.0", "3.11", "3.12", "3.10"),
    },
    "huggingface": {
        "4.6": hugging_face("4.6.1", "1.7.1", "3.8", "3.7", "3.9"),
        "4.10": hugging_face("4.10.2", "1.8.1", "3.8", "3.7", "3.9"),
        "4.12": hugging_face("4.12.3", "1.9.1", "3.8", "3.9", "3.7"),
        "4.17": hugging_face("4.17.0", "1.10.2", "3.8", "3.9", "3.7"),
        "4.26": hugging_face("4.26.0", "1.13.1", "3.9", "3.10"),
        "4.28": hugging_face("4.28.1", "2.0.0", "3.10", "3.9"),
        "4.37": hugging_face("4.37.0", "2.1.0", "3.10", "3.11"),
        "4.48": hugging_face("4.48.0", "2.3.0", "3.11", "3.10", "3.12"),
        "4.49": hugging_face("4.49.0", "2.6.0", "3.12", "3.11", "3.10"),
        "4.51": hugging_face("4.51.3", "2.6.0", "3.12", "3.11", "3.10"),
    },
    "pytorch": {
        "1.8": pytorch("1.8.1", "3.8", "3.7", "3.9"),
        "1.9": pytorch("1.9.1", "3.8", "3.9", "3.7"),
        "1.10": pytorch("1.10.2", "3.8", "3.9", "3.7"),
        "1.11": pytorch("1.11.0", "3.8", "3.9", "3.10", "3.7"),
        "1.12": pytorch("1.12.1", "3.8", "3.9", "3.10", "3.7"),
        "1.13": pytorch("1.13.1", "3.9", "3.10"),
        "2.0": pytorch("2.0.1", "3.10", "3.9"),
        "2.1": pytorch("2.1.0", "3.10", "3.11"),
        "2.2": pytorch("2.2.0", "3.10", "3.11"),
        "2.3": pytorch("2.3.0", "3.11", "3.10", "3.12"),
        "2.4": pytorch("2.4.0", "3.11", "3.10", "3.12"),
        "2.5": pytorch("2.5.1", "3.11", "3.10", "3.12"),
        "2.6": pytorch("2.6.0", "3.12", "3.11", "3.10", "3.13"),
    },
    "sklearn": {
        "0.20": scikit_learn("0.20.0", ("3.7",), "numpy<1.18", "scipy<1.4", "pandas<1.1"),
        "0.23": scikit_learn("0.23.2", ("3.7", "3.8"), "numpy<1.20", "scipy<1.6", "pandas<1.2"),
        "1.0": scikit_learn("1.0.2", ("3.8", "3.9", "3.10"), "numpy<1.23", "pandas<1.4"),
        "1.2": scikit_learn("1.2.2", ("3.8", "3.9", "3.10", "3.11"), "numpy<1.25", "pandas<2.1"),
        "1.4": scikit_learn("1.4.2", ("3.10", "3.11", "3.9", "3.12"), "numpy<2", "pandas<2.3"),
    },
    "tensorflow": {
        "2.3": tensorflow("2.3.1", ("3.7", "3.8"), *OLD_TENSORFLOW),
        "2.4": tensorflow("2.4.3", ("3.7", "3.8"), *OLD_TENSORFLOW),
        "2.5": tensorflow("2.5.1", ("3.8", "3.7", "3.9"), *OLD_TENSORFLOW),
        "2.6": tensorflow("2.6.3", ("3.8", "3.7", "3.9"), "keras<2.7", *OLD_TENSORFLOW),
        "2.7": tensorflow("2.7.4", ("3.8", "3.9", "3.7"), *OLD_TENSORFLOW),
        "2.8": tensorflow("2.8.4", ("3.8", "3.9", "3.10"), *OLD_TENSORFLOW),
        "2.9": tensorflow("2.9.3", ("3.9", "3.8", "3.10"), *OLD_TENSORFLOW),
        "2.10": tensorflow("2.10.1", ("3.9", "3.8", "3.10"), *OLD_TENSORFLOW),
        "2.11": tensorflow("2.11.1", ("3.9", "3.8", "3.10"), *OLD_TENSORFLOW),
        "2.12": tensorflow("2.12.1", ("3.10", "3.9", "3.8", "3.11"), "numpy<1.24"),
        "2.13": tensorflow("2.13.0", ("3.10", "3.9", "3.8", "3.11"), "numpy<1.25"),
        "2.14": tensorflow("2.14.1", ("3.10", "3.9", "3.11"), "numpy<1.27"),
        "2.16": tensorflow("2.16.1", ("3.10", "3.11", "3.12", "3.9"), "keras<3.4"),
        "2.18": tensorflow("2.18.0", ("3.10", "3.11", "3.12", "3.9"), "keras<3.8"),
        "2.19": tensorflow("2.19.0", ("3.12", "3.11", "3.10", "3.9"), "keras<3.11"),
    },
    "xgboost": {
        "0.90": xgboost("0.90", ("3.7", "3.8"), "scikit-learn==0.24.1", "pandas<1.3"),
        "1.0": xgboost("1.0.2", ("3.7", "3.8"), "scikit-learn==0.24.1", "pandas<1.3"),
        "1.2": xgboost("1.2.1", ("3.7", "3.8"), "scikit-learn==0.24.1", "pandas<1.3"),
        "1.3": xgboost("1.3.3", ("3.7", "3.8"), "scikit-learn==0.24.1", "pandas<1.3"),
        "1.5": xgboost("1.5.2", ("3.8", "3.9", "3.7"), "scikit-learn==0.24.1", "pandas<1.3",
                       "numpy<1.23", "setuptools<81"),
        "1.7": xgboost("1.7.4", ("3.8", "3.9", "3.10"), "scikit-learn==1.0.2", "pandas<1.5",
                       "numpy<1.25"),
        "3.0": xgboost("3.0.5", ("3.10", "3.11", "3.12"), "scikit-learn<1.8", "pandas<2.3",
                       "numpy<2.2"),
    },
}  # fmt: skip
