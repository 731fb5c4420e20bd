"""A separate process for Triton, because its import decides whether it interprets kernels."""

import contextlib
import importlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

Run = Callable[..., Any]


@contextlib.contextmanager
def worker(settings: Mapping[str, str]) -> Iterator[Run]:
    """Runs functions of modules in this folder, "module.function", with these variables.

    Errors in the process are raised here.
    """
    settings = {**settings, "OMP_NUM_THREADS": "1"}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            pool.submit(os.getpid).result()  # the process has the variables now
            _restore(before)
            yield lambda name, *values: pool.submit(_call, name, *values).result()
    finally:
        _restore(before)


def _restore(settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _call(name: str, *values: Any) -> Any:
    module, function = name.split(".")
    return getattr(importlib.import_module(f"tests.unit.engine.{module}"), function)(*values)
