"""The safetensors format: tensors as views of a file's bytes. The header is untrusted.

Source: the format's description at github.com/huggingface/safetensors.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy
import torch
from numpy.typing import NDArray

from hostelry.engine.lora.errors import AdapterError

_MAX_HEADER_BYTES = 16 << 20  # room for the names of a hundred thousand tensors
_MAX_DIMENSIONS = 8
_MAX_INTEGER = 1 << 48
_ALIGNMENT = 8
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


def parse_safetensors(file_name: str, content: NDArray[numpy.uint8]) -> dict[str, torch.Tensor]:
    """The tensors in the file's bytes, by name.

    Raises AdapterError naming `file_name`, and the tensor, if header and bytes contradict each
    other, or for a dtype other than a float of 2, 4 or 8 bytes.
    """
    header, start = _read_header(file_name, content)
    data = _Data(content[start:])
    try:
        return {
            name: _read_tensor(name, entry, data)
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except _MisfitError as error:
        raise AdapterError(f"{file_name} cannot be read: {error}") from error


class _MisfitError(Exception):
    """The header and the bytes do not agree."""


def _read_header(file_name: str, content: NDArray[numpy.uint8]) -> tuple[Mapping[str, Any], int]:
    """The parsed header, and where the tensors' bytes begin."""
    size = int.from_bytes(content[:8].tobytes(), "little")
    limit = min(_MAX_HEADER_BYTES, len(content) - 8)
    if size > limit:
        raise AdapterError(
            f"{file_name} cannot be read: its header has {size} bytes by its own account; "
            f"at most {max(limit, 0)}"
        )
    try:
        header = json.loads(
            content[8 : 8 + size].tobytes().decode(), object_pairs_hook=_refuse_doubles
        )
    except (ValueError, RecursionError) as error:
        raise AdapterError(f"{file_name} cannot be read: its header is not JSON") from error
    if not isinstance(header, dict):
        raise AdapterError(f"{file_name} cannot be read: its header is no JSON object")
    return header, 8 + size


def _refuse_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name twice")
    return table


class _Data:
    """The bytes after the header, viewed as numbers of each dtype that occurs."""

    def __init__(self, content: NDArray[numpy.uint8]) -> None:
        if content.ctypes.data % _ALIGNMENT:
            content = content.copy()
        self.num_bytes = len(content)
        self._content = torch.from_numpy(content)
        self._views: dict[torch.dtype, torch.Tensor] = {}

    def tensor(self, dtype: torch.dtype, begin: int, shape: tuple[int, ...]) -> torch.Tensor:
        """The numbers from byte `begin` on, of that shape. The caller has checked the bounds."""
        if begin % dtype.itemsize:
            count = math.prod(shape) * dtype.itemsize
            return self._content[begin : begin + count].clone().view(dtype).view(shape)
        numbers = self._views.get(dtype)
        if numbers is None:
            whole = self.num_bytes // dtype.itemsize * dtype.itemsize
            numbers = self._views[dtype] = self._content[:whole].view(dtype)
        strides = (shape[1], 1) if len(shape) == 2 else torch.empty(shape, device="meta").stride()
        return numbers.as_strided(shape, strides, begin // dtype.itemsize)


def _read_tensor(name: str, entry: object, data: _Data) -> torch.Tensor:
    if not isinstance(entry, dict):
        raise _MisfitError(f"tensor {name} has no description")
    dtype = _DTYPES.get(str(entry.get("dtype")))
    if dtype is None:
        raise AdapterError(f"tensor {name} has dtype {entry.get('dtype')}; it must be a float type")
    shape = _check_integers(name, "shape", entry.get("shape"))
    offsets = _check_integers(name, "data_offsets", entry.get("data_offsets"))
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= data.num_bytes:
        raise _MisfitError(
            f"tensor {name} lies at {offsets} in {data.num_bytes} bytes of tensors; the file is "
            "cut short or damaged"
        )
    begin, end = offsets
    if math.prod(shape) * dtype.itemsize != end - begin:
        raise _MisfitError(f"tensor {name} has shape {shape} in {end - begin} bytes")
    return data.tensor(dtype, begin, shape)


def _check_integers(name: str, field: str, value: object) -> tuple[int, ...]:
    if isinstance(value, list) and len(value) <= _MAX_DIMENSIONS:
        for item in value:
            if type(item) is not int or not 0 <= item < _MAX_INTEGER:
                break
        else:
            return tuple(value)
    raise _MisfitError(f"tensor {name} has no usable {field}")
