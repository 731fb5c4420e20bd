"""The tensors of a model folder, memory-mapped; each is taken once and none may be left over."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from hostelry.engine.models.spec import ModelError


class Checkpoint:
    """Tensors by name, from model.safetensors or the shards of its index.

    A context manager. `take` maps a tensor without reading it into memory of its own; `finish`
    refuses tensors nobody took.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._readers: dict[str, Any] = {}
        self._left: set[str] = set()

    def __enter__(self) -> "Checkpoint":
        for path in _shards(self._folder):
            try:
                reader = self._stack.enter_context(safe_open(path, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{path.name} cannot be read: {error}") from error
            for name in reader.keys():  # noqa: SIM118 - the reader is no mapping
                self._readers[name] = reader
        self._left = set(self._readers)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._readers

    def take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The tensor `name` as stored. Raises ModelError if it is absent or of another shape."""
        if name not in self._readers:
            raise ModelError(f"tensor {name} is missing from {self._folder.name}")
        tensor: torch.Tensor = self._readers[name].get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"tensor {name} has shape {tuple(tensor.shape)}; config.json asks for {shape}"
            )
        if not tensor.is_floating_point():
            raise ModelError(f"tensor {name} has dtype {tensor.dtype}; only floats are supported")
        self._left.discard(name)
        return tensor

    def ignore(self, names: Iterator[str]) -> None:
        """Leave tensors out that carry nothing the config does not say."""
        self._left.difference_update(names)

    def finish(self) -> None:
        """Raise ModelError where a stored tensor was not used."""
        if self._left:
            names = sorted(self._left)
            raise ModelError(
                f"{len(names)} unexpected tensors in {self._folder.name}, first {names[0]}"
            )


def _shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    if not index.is_file():
        raise ModelError(
            f"{folder} holds neither model.safetensors nor model.safetensors.index.json"
        )
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(f"{index.name} has no weight_map: {error}") from error
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise ModelError(f"{index.name} names {name}, which is no file of {folder.name}")
    return [folder / name for name in names]
