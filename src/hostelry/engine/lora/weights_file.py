"""Reader of an adapter's weights file, which runs no code in it and trusts none of its sizes."""

import pickle
import re
import struct
import zipfile
from pathlib import Path

import numpy
import torch
from numpy.typing import NDArray

from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.folder import find_regular_file
from hostelry.engine.lora.safetensors_file import parse_safetensors

FILE_NAMES = ("adapter_model.safetensors", "adapter_model.bin")

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

# Exceptions of torch's unpickler for files that torch did not write.
_DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
)


def read_tensors(folder: Path, *, max_bytes: int) -> tuple[str, dict[str, torch.Tensor]]:
    """The file's name and its tensors by name, read once, whole.

    Raises AdapterError without such a file, and for a file of more than `max_bytes` or with
    anything but plain tensors.
    """
    for name in FILE_NAMES:
        path = find_regular_file(folder, name, max_bytes=max_bytes)
        if path is not None:
            if path.suffix == ".bin":
                return name, _unpickle(path)
            return name, parse_safetensors(name, _read_bytes(path))
    raise AdapterError(f"there is neither {FILE_NAMES[0]} nor {FILE_NAMES[1]}")


def check_tensor(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raise AdapterError unless `tensor` is a float tensor of that shape."""
    if tuple(tensor.shape) != shape:
        raise AdapterError(
            f"tensor {name} has shape {tuple(tensor.shape)}; r and the base model ask for {shape}"
        )
    if tensor.dtype not in _DTYPES:
        raise AdapterError(f"tensor {name} has dtype {tensor.dtype}; it must be a float type")
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise AdapterError(f"tensor {name} has no plain values")


def _read_bytes(path: Path) -> NDArray[numpy.uint8]:
    """The whole file. Not mapped: truncating a mapped file would kill the process."""
    try:
        return numpy.fromfile(path, numpy.uint8)
    except OSError as error:
        raise AdapterError(f"{path.name} cannot be read: {error}") from error


def _unpickle(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a pickle. Raises AdapterError for a pickle that holds anything else."""
    try:
        _refuse_compressed(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise AdapterError(
            f"{path.name} holds more than tensors, or is damaged"
            f"{_find_global(str(error))}; code in it is never run"
        ) from error
    except _DAMAGE as error:
        reason = f"{type(error).__name__}: {error}"
        raise AdapterError(f"{path.name} cannot be read: {reason}") from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor)
        for name, tensor in tensors.items()
    ):
        raise AdapterError(f"{path.name} holds no table of tensors")
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _refuse_compressed(path: Path) -> None:
    """Raise AdapterError for compressed entries: torch writes none, and they may be zip bombs."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except zipfile.BadZipFile as error:
        raise AdapterError(f"{path.name} cannot be read: {error}") from error
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > entry.compress_size:
            raise AdapterError(f"{path.name} holds compressed entries; torch writes none")


def _find_global(message: str) -> str:
    """The function or class that a refused pickle asks for, as torch names it."""
    found = re.search(r"GLOBAL (\S+)", message)
    return f" (it asks for {found[1]})" if found else ""
