"""Packed weights and their products in native code. `kernels.products` defines the results.

# T rows, I in-features, O out-features
"""

import ctypes
from ctypes import c_int32, c_void_p
from typing import ClassVar, Literal

import numpy
import torch
from numpy.typing import NDArray

from hostelry.engine.kernels.native.library import (
    LINE_BYTES,
    LineMemory,
    NativeLibrary,
    NativeThreads,
)
from hostelry.engine.kernels.products import WeightKind

KindName = Literal["auto", "float32", "bfloat16", "int8"]

_KINDS = {
    "float32": WeightKind.F32,
    "bfloat16": WeightKind.BF16,
    "int8": WeightKind.INT8,
}
_DTYPES = {torch.float32: 0, torch.bfloat16: 1}
_MAX_FEATURES = 2**24
_BLOCK = 16


class PackedWeightStructure(ctypes.Structure):
    """`PackedWeight` of cpp/gemm.h."""

    _fields_: ClassVar[list[tuple[str, type]]] = [
        ("packed", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
        ("kind", c_int32),
        ("out_features", c_int32),
        ("in_features", c_int32),
        ("reserved", c_int32),
    ]


class PackedWeight:
    """A copy of a weight, packed for one library's products.

    `kind` is the format that is stored and multiplied. "auto" is the tensor's own type. int8
    quantizes as `kernels.products.quantize_int8` does. Native code reads `structure`, which is
    valid as long as this object. Biases are stored in fp32.
    """

    def __init__(
        self,
        library: NativeLibrary,
        threads: NativeThreads,
        weight_OI: torch.Tensor,
        *,
        kind: KindName = "auto",
        bias_O: torch.Tensor | None = None,
    ) -> None:
        """Pack the weight with all threads. Raises ValueError for one that cannot be packed."""
        weight_OI = weight_OI.detach()
        self.kind = check_weight(weight_OI, bias_O, kind)
        self.out_features, self.in_features = weight_OI.shape
        self._library = library
        memory = library.memory
        functions, sizes = library.functions, (self.kind, self.out_features, self.in_features)
        self._packed = memory.take(functions.hostelry_packed_bytes(*sizes))
        self._scales = self._floats(memory) if self.kind is WeightKind.INT8 else None
        self._bias = None if bias_O is None else self._floats(memory)
        if self._bias is not None and bias_O is not None:
            self._bias[: self.out_features] = bias_O.detach().float().numpy()
        if weight_OI.stride(1) != 1:
            weight_OI = weight_OI.contiguous()
        functions.hostelry_pack(
            threads.handle,
            self.kind,
            _DTYPES[weight_OI.dtype],
            weight_OI.data_ptr(),
            weight_OI.stride(0),
            self.out_features,
            self.in_features,
            _address(self._packed),
            _address(self._scales),
        )
        self.structure = PackedWeightStructure(
            _address(self._packed), _address(self._scales), _address(self._bias), *sizes, 0
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of memory, scales and bias included."""
        arrays = (self._packed, self._scales, self._bias)
        return sum(array.nbytes for array in arrays if array is not None)

    def product(self, x_TI: torch.Tensor, threads: NativeThreads) -> torch.Tensor:
        """The product (T, O) fp32 of fp32 rows (T, I). Raises ValueError for other rows."""
        if x_TI.ndim != 2 or x_TI.shape[1] != self.in_features or x_TI.dtype != torch.float32:
            raise ValueError(
                f"rows of shape {tuple(x_TI.shape)} and {x_TI.dtype}; the weight takes "
                f"(rows, {self.in_features}) of torch.float32"
            )
        x_TI = x_TI.contiguous()
        num_rows = len(x_TI)
        y_TO = torch.empty(num_rows, self.out_features)
        functions = self._library.functions
        prepared_bytes = functions.hostelry_prepared_bytes(self.kind, num_rows, self.in_features)
        prepared = torch.empty(prepared_bytes + LINE_BYTES, dtype=torch.uint8)
        functions.hostelry_gemm(
            threads.handle,
            ctypes.byref(self.structure),
            x_TI.data_ptr(),
            self.in_features,
            num_rows,
            y_TO.data_ptr(),
            self.out_features,
            0,
            -(-prepared.data_ptr() // LINE_BYTES) * LINE_BYTES,
        )
        return y_TO

    def _floats(self, memory: LineMemory) -> NDArray[numpy.float32]:
        padded = -(-self.out_features // _BLOCK) * _BLOCK
        return memory.take(4 * padded).view(numpy.float32)


def check_weight(
    weight_OI: torch.Tensor, bias_O: torch.Tensor | None, kind: KindName
) -> WeightKind:
    """The kind to pack as. Raises ValueError for a weight that native code cannot pack."""
    shape, dtype = tuple(weight_OI.shape), weight_OI.dtype
    if len(shape) != 2 or not all(0 < size <= _MAX_FEATURES for size in shape):
        raise ValueError(
            f"a weight of shape {shape}; native code packs (out, in) of 1 to {_MAX_FEATURES}"
        )
    if dtype not in _DTYPES or weight_OI.device.type != "cpu":
        raise ValueError(
            f"a weight of {dtype} on {weight_OI.device}; native code packs torch.float32 and "
            "torch.bfloat16 on cpu"
        )
    if bias_O is not None and tuple(bias_O.shape) != shape[:1]:
        raise ValueError(f"a bias of shape {tuple(bias_O.shape)} for {shape[0]} out-features")
    if kind == "auto":
        return WeightKind.F32 if dtype == torch.float32 else WeightKind.BF16
    if kind not in _KINDS:
        raise ValueError(f"kind is {kind!r}; the kinds: auto, {', '.join(_KINDS)}")
    return _KINDS[kind]


def _address(array: NDArray[numpy.generic] | None) -> int | None:
    return None if array is None else array.ctypes.data
