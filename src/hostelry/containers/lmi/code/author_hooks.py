"""Hooks of the author's `model.py`."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from hostelry.base.errors import HostelryError
from hostelry.containers.code.code_channel import AuthorModule

FILE = "model.py"
MODULE = "model"
NAMES = (
    "pair_list", "inputs", "outputs", "encode_decode", "async_utils", "input_parser", "request_io",
    "output_formatter", "session_manager",
)  # fmt: skip
PACKAGE = "hostelry.containers.lmi.code.djl_python"

HANDLE, INPUT_FORMATTER, OUTPUT_FORMATTER = "handle", "input_formatter", "output_formatter"
MARKS = (("is_input_formatter", INPUT_FORMATTER), ("is_output_formatter", OUTPUT_FORMATTER))
OTHER_MARKS = ("is_prediction_handler", "is_init_handler")
# Called by DJL Serving for adapters if model.py is the whole model.
ADAPTER_FUNCTIONS = ("register_adapter", "update_adapter", "unregister_adapter")
SAGEMAKER_FUNCTIONS = ("model_fn", "input_fn", "predict_fn", "output_fn")


class AuthorModuleError(HostelryError):
    """model.py cannot be used. The message has the reason for its author."""


def give_djl_python() -> None:
    """Make our package importable as `djl_python`, each of its modules once."""
    sys.modules["djl_python"] = importlib.import_module(PACKAGE)
    for name in NAMES:
        sys.modules[f"djl_python.{name}"] = importlib.import_module(f"{PACKAGE}.{name}")


def load_author_module(folder: str, packages: str | None) -> AuthorModule:
    """Run model.py of `folder` and find its hooks. `packages` is searched before Python's own.

    Raises AuthorModuleError.
    """
    sys.path[:0] = [folder, *([packages] if packages else [])]
    specification = importlib.util.spec_from_file_location(MODULE, Path(folder, FILE))
    if specification is None or specification.loader is None:
        raise AuthorModuleError(f"{FILE} is no Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[MODULE] = module
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise AuthorModuleError(AuthorModule(folder).describe(error)) from error
    return AuthorModule(folder, find_hooks(module))


def check_adapter_functions(found: Mapping[str, Any]) -> None:
    """Raise AuthorModuleError for a hook by which DJL's handlers load adapters."""
    for name in ADAPTER_FUNCTIONS:
        if callable(found.get(name)):
            raise AuthorModuleError(
                f"{name} is never called here: the server loads adapters itself; leave it out, or "
                "put an adapter's formatters into its own model.py"
            )


def find_hooks(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The hooks of a module by name. Raises AuthorModuleError for hooks that are never called."""
    hooks: dict[str, Callable[..., Any]] = {}
    found = vars(module)
    if callable(found.get(HANDLE)):
        hooks[HANDLE] = found[HANDLE]
    check_adapter_functions(found)
    for name, value in sorted(found.items()):
        if not callable(value):
            continue
        for mark, hook in MARKS:
            if getattr(value, mark, False) is True:
                hooks.setdefault(hook, value)
        for mark in OTHER_MARKS:
            if getattr(value, mark, False) is True:
                raise AuthorModuleError(
                    f"{name} is marked @{mark.removeprefix('is_')}, which belongs to handlers of "
                    "scikit-learn and XGBoost models; write `handle` or a formatter"
                )
    functions = [name for name in SAGEMAKER_FUNCTIONS if callable(found.get(name))]
    if functions and not hooks:
        raise AuthorModuleError(
            f"{FILE} has {', '.join(functions)}, which belong to SageMaker's handlers of other "
            "frameworks; write `handle` or a formatter"
        )
    return hooks
