"""Stands in for modules of AWS's images: they can be imported by their names.

Inference scripts that AWS publishes import them. The real packages are model servers. They need
Java, a compiler or another version of sagemaker-inference, and two of them are on no index. These
modules have the names that such scripts use, over the functions of this server. A package of the
same name in the runtime, in requirements.txt or in the model's own code comes first.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from hostelry.containers.predictive.worker import aws_functions

CONTAINERS, XGBOOST = "sagemaker_containers", "sagemaker_xgboost_container"
HUGGING_FACE = "sagemaker_huggingface_inference_toolkit"
PYTORCH = "sagemaker_pytorch_serving_container"
# The function that provides the names of each module.
PROVIDED = {
    f"{CONTAINERS}._content_types": aws_functions.provide_content_types,
    f"{CONTAINERS}._encoders": aws_functions.provide_encoders,
    f"{CONTAINERS}._env": aws_functions.provide_env,
    f"{CONTAINERS}._errors": aws_functions.provide_errors,
    f"{CONTAINERS}._transformer": aws_functions.provide_transformer,
    f"{CONTAINERS}._worker": aws_functions.provide_worker,
    f"{XGBOOST}.constants.xgb_content_types": aws_functions.provide_xgboost_types,
    f"{XGBOOST}.encoder": aws_functions.provide_xgboost_encoder,
    "sagemaker_algorithm_toolkit.exceptions": aws_functions.provide_xgboost_errors,
    f"{PYTORCH}.default_inference_handler": aws_functions.provide_pytorch,
    f"{PYTORCH}.default_pytorch_inference_handler": aws_functions.provide_pytorch,
    f"{HUGGING_FACE}.content_types": aws_functions.provide_hugging_face_types,
    f"{HUGGING_FACE}.decoder_encoder": aws_functions.provide_hugging_face_codecs,
    "mms.service": aws_functions.provide_mms,
}
# Modules for training or of AWS's server. They can be imported, and fail when they are used.
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
    """Make these modules importable if no other finder has them."""
    if not any(isinstance(finder, AwsModules) for finder in sys.meta_path):
        sys.meta_path.append(AwsModules())


class AwsModules(MetaPathFinder, Loader):
    """Finds and creates the modules."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The module's spec. None for other names and for parts of an installed package."""
        parent = sys.modules.get(fullname.rpartition(".")[0])
        if fullname not in NAMES or not (parent is None or isinstance(parent, AwsModule)):
            return None
        has_parts = any(name.startswith(fullname + ".") for name in NAMES)
        return ModuleSpec(fullname, self, is_package=has_parts)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Create an empty module."""
        return AwsModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module with its names."""
        vars(module).update(get_names(module.__name__))


class AwsModule(ModuleType):
    """A module whose unknown names are functions that raise an error."""

    def __getattr__(self, name: str) -> Any:
        """A function that raises an error. Raises AttributeError for Python's own names."""
        if name.startswith("__"):
            raise AttributeError(name)
        return build_missing(f"{self.__name__}.{name}")


def get_names(module: str) -> dict[str, Any]:
    """The names of one of AWS's modules."""
    if module == FRAMEWORK:
        parts = [name for name in NAMES if name.rpartition(".")[0] == CONTAINERS]
        named = {name.rpartition(".")[2].lstrip("_"): name for name in parts}
        return {name: importlib.import_module(it) for name, it in named.items() if name != "beta"}
    return PROVIDED[module]() if module in PROVIDED else {}


def build_missing(name: str) -> Any:
    """A function that says why `name` cannot be called here."""

    def call(*_arguments: Any, **_named: Any) -> Any:
        raise RuntimeError(
            f"{name} is for training, or a part of AWS's own model server, and is not here: this "
            "server calls model_fn, input_fn, predict_fn and output_fn itself"
        )

    return call
