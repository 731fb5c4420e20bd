"""The tensors of a model folder, memory-mapped. Each is taken once and none may be left over."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from hostelry.engine.models.spec import UnsupportedModelError

_FLOATS = ("F64", "F32", "F16", "BF16")


class TensorFiles:
    """The tensors in the safetensors files of a model folder, checked before any is read.

    No file stays open: each `read` maps the files again, so that only returned tensors keep a map
    alive. `renamed` gives the name under which a stored tensor is expected. If two tensors get the
    same name, one is left over. Raises UnsupportedModelError for files that cannot be read.
    """

    def __init__(
        self, folder: Path, *, renamed: Callable[[str], str] = lambda stored: stored
    ) -> None:
        self._folder = folder
        self._paths: dict[str, Path] = {}
        self._names: dict[str, str] = {}
        self._stored: dict[str, tuple[tuple[int, ...], str]] = {}
        self._identities: dict[Path, tuple[int, ...]] = {}
        for path in _find_shards(folder):
            self._identities[path] = _identify(path)
            with _open(path) as reader:
                for stored_name in reader.keys():  # noqa: SIM118 - the reader is not a mapping
                    stored = reader.get_slice(stored_name)
                    name = renamed(stored_name)
                    name = stored_name if name in self._paths else name
                    self._paths[name] = path
                    self._names[name] = stored_name
                    self._stored[name] = (tuple(stored.get_shape()), stored.get_dtype())
        self._left = set(self._paths)

    @property
    def names(self) -> Collection[str]:
        """The names of all tensors."""
        return self._stored.keys()

    def expect(self, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> None:
        """Check that the tensors are there.

        Raises UnsupportedModelError, which names the first tensor that is missing, of another
        shape, or not of a float type.
        """
        for name, shape in shapes:
            if name not in self._stored:
                raise UnsupportedModelError(f"tensor {name} is missing from {self._folder.name}")
            stored_shape, dtype = self._stored[name]
            if stored_shape != shape:
                raise UnsupportedModelError(
                    f"tensor {name} has shape {stored_shape}; config.json asks for {shape}"
                )
            if dtype not in _FLOATS:
                raise UnsupportedModelError(
                    f"tensor {name} has dtype {dtype}; {', '.join(_FLOATS)} are read"
                )
            self._left.discard(name)

    def ignore(self, names: Iterable[str]) -> None:
        """Accept tensors that hold only values that the config repeats."""
        self._left.difference_update(names)

    def finish(self) -> None:
        """Raise UnsupportedModelError if a stored tensor was neither expected nor ignored."""
        if self._left:
            raise UnsupportedModelError(
                f"{len(self._left)} unexpected tensors in {self._folder.name}, "
                f"first {min(self._left)}"
            )

    def read(self, names: Iterable[str]) -> Mapping[str, torch.Tensor]:
        """Map these tensors as stored. Raises UnsupportedModelError for a file changed since."""
        tensors: dict[str, torch.Tensor] = {}
        with ExitStack() as stack:
            readers: dict[Path, Any] = {}
            for name in names:
                path = self._paths[name]
                if path not in readers:
                    if _identify(path) not in ((), self._identities[path]):
                        raise UnsupportedModelError(
                            f"{path.name} was replaced while {self._folder.name} was in use"
                        )
                    readers[path] = stack.enter_context(_open(path))
                tensors[name] = self._get(readers[path], name)
        return tensors

    def _get(self, reader: Any, name: str) -> torch.Tensor:
        try:
            tensor: torch.Tensor = reader.get_tensor(self._names[name])
        except SafetensorError as error:
            raise UnsupportedModelError(f"tensor {name} cannot be read: {error}") from error
        if tuple(tensor.shape) != self._stored[name][0]:
            raise UnsupportedModelError(
                f"tensor {name} was replaced while {self._folder.name} was read"
            )
        return tensor


def _identify(path: Path) -> tuple[int, ...]:
    """A value that changes when the file is replaced or written to. Empty without the file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise UnsupportedModelError(f"{path.name} cannot be read: {error}") from error


def _find_shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    if not index.is_file():
        raise UnsupportedModelError(
            f"{folder} holds neither model.safetensors nor model.safetensors.index.json"
        )
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UnsupportedModelError(f"{index.name} has no weight_map: {error}") from error
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise UnsupportedModelError(
                f"{index.name} names {name}, which is no file of {folder.name}"
            )
    return [folder / name for name in names]
