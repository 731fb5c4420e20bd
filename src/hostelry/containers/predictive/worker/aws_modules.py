"""The modules of AWS's images, importable by their names, over the functions of this server.

Inference scripts that AWS publishes import them at their top. The packages themselves are model
servers: they need Java, a compiler or another version of sagemaker-inference, and two are on no
index. So the names that such scripts use are here. A package of that name in the runtime, in
requirements.txt or in the model's own code comes first.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

OURS = "hostelry.containers.predictive.worker."
CONTAINERS, XGBOOST = "sagemaker_containers", "sagemaker_xgboost_container"
HUGGING_FACE = "sagemaker_huggingface_inference_toolkit"
PYTORCH = "sagemaker_pytorch_serving_container"
# The module here that has the names of each of AWS's: NAME:GROUP, see `names_of`.
PROVIDED = {
    f"{CONTAINERS}._content_types": "aws_containers:content_types",
    f"{CONTAINERS}._encoders": "aws_containers:encoders",
    f"{CONTAINERS}._env": "aws_containers:env",
    f"{CONTAINERS}._errors": "aws_containers:errors",
    f"{CONTAINERS}._transformer": "aws_containers:transformer",
    f"{CONTAINERS}._worker": "aws_containers:worker",
    f"{XGBOOST}.constants.xgb_content_types": "aws_xgboost:content_types",
    f"{XGBOOST}.encoder": "aws_xgboost:encoder",
    "sagemaker_algorithm_toolkit.exceptions": "aws_xgboost:exceptions",
    f"{PYTORCH}.default_inference_handler": "aws_toolkits:pytorch",
    f"{PYTORCH}.default_pytorch_inference_handler": "aws_toolkits:pytorch",
    f"{HUGGING_FACE}.content_types": "aws_toolkits:content_types",
    f"{HUGGING_FACE}.decoder_encoder": "aws_toolkits:decoder_encoder",
    "mms.service": "aws_toolkits:mms",
}
# What trains, or is AWS's server: it can be imported, and says so when it is used.
ELSEWHERE = (
    *(
        f"{CONTAINERS}.{name}"
        for name in (
            "_files", "_functions", "_logging", "_mapping", "_modules", "_mpi", "_params",
            "_process", "_runner", "_server", "_trainer", "entry_point",
        )
    ),
    *(
        f"{XGBOOST}.{name}"
        for name in (
            "algorithm_mode", "callback", "checkpointing", "data_utils", "distributed",
            "handler_service", "metrics", "serving", "training",
        )
    ),
    *(f"sagemaker_sklearn_container.{name}" for name in ("handler_service", "serving", "training")),
    *(f"{PYTORCH}.{name}" for name in ("handler_service", "serving", "torchserve")),
    *(f"{HUGGING_FACE}.{name}" for name in ("handler_service", "serving", "transformers_utils")),
    *(
        f"sagemaker_training.{name}"
        for name in ("entry_point", "environment", "errors", "files", "logging_config")
    ),
)  # fmt: skip
FRAMEWORK = f"{CONTAINERS}.beta.framework"
NAMES = frozenset(
    ".".join(name.split(".")[:length])
    for name in (*PROVIDED, *ELSEWHERE, FRAMEWORK)
    for length in range(1, name.count(".") + 2)
)


def install() -> None:
    """Let these modules be found where no other finder has them."""
    if not any(isinstance(each, AwsModules) for each in sys.meta_path):
        sys.meta_path.append(AwsModules())


class AwsModules(MetaPathFinder, Loader):
    """Finds and makes the modules."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The module's spec; None for other names, and below a package that is really there."""
        parent = sys.modules.get(fullname.rpartition(".")[0])
        if fullname not in NAMES or not (parent is None or isinstance(parent, AwsModule)):
            return None
        has_parts = any(each.startswith(fullname + ".") for each in NAMES)
        return ModuleSpec(fullname, self, is_package=has_parts)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module."""
        return AwsModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module with its names."""
        vars(module).update(names_of(module.__name__))


class AwsModule(ModuleType):
    """A module whose other names are functions that say that they are not here."""

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError for Python's own names; otherwise a function that refuses."""
        if name.startswith("__"):
            raise AttributeError(name)
        return refused(f"{self.__name__}.{name}")


def names_of(module: str) -> dict[str, Any]:
    """What a module of AWS's has, by name."""
    if module == FRAMEWORK:
        parts = [each for each in NAMES if each.rpartition(".")[0] == CONTAINERS]
        named = {each.rpartition(".")[2].lstrip("_"): each for each in parts}
        return {
            name: importlib.import_module(each) for name, each in named.items() if name != "beta"
        }
    file, _, group = PROVIDED.get(module, "").partition(":")
    found: dict[str, Any] = {}
    if file:
        found = getattr(importlib.import_module(OURS + file), group)()
    return found


def refused(name: str) -> Any:
    """A function that says why `name` cannot be called here."""

    def call(*_arguments: Any, **_named: Any) -> Any:
        raise RuntimeError(
            f"{name} is for training, or a part of AWS's own model server, and is not here: this "
            "server calls model_fn, input_fn, predict_fn and output_fn itself"
        )

    return call
