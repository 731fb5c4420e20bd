"""Structures passed to the native decoder. Each adapter is checked and converted once.

# V vocabulary, M modules, R ranks
"""

import ctypes
from collections import OrderedDict
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from typing import Any, ClassVar

import numpy
from numpy.typing import NDArray

from hostelry.engine.kernels.batch import MODULES, AdapterIndex, Int64, WideRows
from hostelry.engine.kernels.native.gemm import PackedWeightStructure

_Fields = list[tuple[str, type]]


class WideRowsStructure(ctypes.Structure):
    """An update over the vocabulary. Rank 0: no update."""

    _fields_: ClassVar[_Fields] = [
        ("rank", c_int32),
        ("scale", c_float),
        ("vocab_offsets", c_void_p),
        ("hidden_offsets", c_void_p),
    ]


class AdapterIndexStructure(ctypes.Structure):
    """The positions of one adapter's weights."""

    _fields_: ClassVar[_Fields] = [
        ("ranks", c_void_p),
        ("scales", c_void_p),
        ("firsts", c_void_p),
        ("down_offsets", c_void_p),
        ("up_offsets", c_void_p),
        ("embedding", WideRowsStructure),
        ("lm_head", WideRowsStructure),
    ]


class SegmentStructure(ctypes.Structure):
    """Rows of one adapter."""

    _fields_: ClassVar[_Fields] = [
        ("row_start", c_int32),
        ("row_end", c_int32),
        ("index", AdapterIndexStructure),
    ]


class LayerStructure(ctypes.Structure):
    """One layer's weights. Window 0: all positions."""

    _fields_: ClassVar[_Fields] = [
        ("input_norm", c_void_p),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("attn_out_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("mlp_out_norm", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("modules", PackedWeightStructure * len(MODULES)),
        ("window", c_int32),
        ("reserved", c_int32),
    ]


class DecoderStructure(ctypes.Structure):
    """All of a decoder. The library copies it and its layers, not the arrays that they point to."""

    _fields_: ClassVar[_Fields] = [
        ("layers", POINTER(LayerStructure)),
        ("embedding", c_void_p),
        ("final_norm", c_void_p),
        ("lm_head", PackedWeightStructure),
        ("num_layers", c_int32),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("hidden", c_int32),
        ("intermediate", c_int32),
        ("vocabulary", c_int32),
        ("positions", c_int32),
        ("is_bf16", c_int32),
        ("is_gelu", c_int32),
        ("max_rows", c_int32),
        ("norm_eps", c_float),
        ("attention_scale", c_float),
        ("embedding_scale", c_float),
    ]


class StepStructure(ctypes.Structure):
    """One step."""

    _fields_: ClassVar[_Fields] = [
        ("token_ids", c_void_p),
        ("positions", c_void_p),
        ("row_starts", c_void_p),
        ("lengths", c_void_p),
        ("pages", c_void_p),
        ("logit_rows", c_void_p),
        ("segments", c_void_p),
        ("pool", c_void_p),
        ("logits", c_void_p),
        ("greedy", c_void_p),
        ("finite", c_void_p),
        ("num_rows", c_int32),
        ("num_sequences", c_int32),
        ("pages_per_sequence", c_int32),
        ("num_logit_rows", c_int32),
        ("num_segments", c_int32),
        ("num_pages", c_int32),
        ("page_tokens", c_int32),
        ("reserved", c_int32),
    ]


class RefusalStructure(ctypes.Structure):
    """Why a step was refused. `fault` indexes `FAULTS`."""

    _fields_: ClassVar[_Fields] = [
        ("fault", c_int32),
        ("index", c_int32),
        ("value", c_int64),
    ]


FAULTS = (
    "",
    "the step has {value} rows; the decoder was made for at most {max_rows}",
    "row_starts_B1[{index}] is {value}; starts begin at 0, rise and end at {num_rows}",
    "lengths_B[{index}] is {value}; a length covers the rows, the pages cover the length, and"
    " {positions} positions are the most",
    "positions_T[{index}] is {value}; rows are the last tokens of their sequence, in order",
    "token_ids_T[{index}] is {value}; the vocabulary has {vocabulary} tokens",
    "pages_BP[{index}] has page {value}; the pool has {num_pages} pages",
    "logit_rows_S[{index}] is {value}; the step has {num_rows} rows",
    "segments[{index}] has the row bound {value}; segments are not empty, in order, apart, and"
    " within {num_rows} rows",
)
"""Messages by number of `Fault` in cpp/step.h."""


_MOST = 512  # structures kept. Each keeps an index of some 50 KB alive


class AdapterStructures:
    """Structures of adapters by identity of their index, whose arrays may not change.

    `widths`: (in-features, out-features) of a layer's modules.
    """

    def __init__(
        self, widths: Sequence[tuple[int, int]], num_layers: int, hidden: int, vocabulary: int
    ) -> None:
        self._in_M = numpy.array([width for width, _ in widths] * num_layers, numpy.int64)
        self._out_M = numpy.array([width for _, width in widths] * num_layers, numpy.int64)
        self._hidden = hidden
        self._vocabulary = vocabulary
        # The index is kept with its structure, so that no other index has its id.
        self._known: OrderedDict[int, tuple[AdapterIndex, int, AdapterIndexStructure]] = (
            OrderedDict()
        )

    def get(self, index: AdapterIndex, pool_elements: int) -> AdapterIndexStructure:
        """The structure of `index`, whose rows lie in a pool of that many elements.

        Raises ValueError for arrays of another type or length, and rows outside the pool.
        """
        known = self._known.get(id(index))
        if known is not None and known[1] == pool_elements:
            self._known.move_to_end(id(index))
            return known[2]
        self._check(index, pool_elements)
        structure = AdapterIndexStructure(
            address(index.ranks_M),
            address(index.scales_M),
            address(index.firsts_M),
            address(index.down_offsets_R),
            address(index.up_offsets_R),
            _wide(index.embedding),
            _wide(index.lm_head),
        )
        self._known[id(index)] = (index, pool_elements, structure)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
        return structure

    def _check(self, index: AdapterIndex, pool_elements: int) -> None:
        num_modules = len(self._in_M)
        num_ranks = len(index.down_offsets_R)
        check_array("ranks_M", index.ranks_M, numpy.int32, (num_modules,))
        check_array("scales_M", index.scales_M, numpy.float32, (num_modules,))
        check_array("firsts_M", index.firsts_M, numpy.int32, (num_modules,))
        check_array("down_offsets_R", index.down_offsets_R, numpy.int64, (num_ranks,))
        check_array("up_offsets_R", index.up_offsets_R, numpy.int64, (num_ranks,))
        ranks_M = index.ranks_M.astype(numpy.int64)
        ends_M = index.firsts_M + ranks_M
        wrong_M = (ranks_M < 0) | ((ranks_M > 0) & ((index.firsts_M < 0) | (ends_M > num_ranks)))
        if wrong_M.any():
            module = int(wrong_M.argmax())
            raise ValueError(
                f"module {module} of layer {module // len(MODULES)} has ranks_M"
                f" {ranks_M[module]} from firsts_M {index.firsts_M[module]}; there are"
                f" {num_ranks} offsets"
            )
        # The entry of each rank of each module.
        modules = numpy.repeat(numpy.arange(num_modules), ranks_M)
        starts = numpy.repeat(ranks_M.cumsum() - ranks_M, ranks_M)
        entries = index.firsts_M[modules] + numpy.arange(len(modules)) - starts
        _check_rows(
            "down_offsets_R", index.down_offsets_R[entries], self._in_M[modules], pool_elements
        )
        _check_rows(
            "up_offsets_R", index.up_offsets_R[entries], self._out_M[modules], pool_elements
        )
        for name, wide in (("embedding", index.embedding), ("lm_head", index.lm_head)):
            if wide is not None:
                self._check_wide(name, wide, pool_elements)

    def _check_wide(self, name: str, wide: WideRows, pool_elements: int) -> None:
        if wide.rank < 1:
            raise ValueError(f"{name} has rank {wide.rank}; a rank is at least 1")
        vocab_name, hidden_name = f"{name}.vocab_offsets_V", f"{name}.hidden_offsets_R"
        check_array(vocab_name, wide.vocab_offsets_V, numpy.int64, (self._vocabulary,))
        check_array(hidden_name, wide.hidden_offsets_R, numpy.int64, (wide.rank,))
        _check_rows(vocab_name, wide.vocab_offsets_V, wide.rank, pool_elements)
        _check_rows(hidden_name, wide.hidden_offsets_R, self._hidden, pool_elements)


def check_array(
    name: str, array: NDArray[Any], dtype: type[numpy.generic], shape: tuple[int, ...]
) -> None:
    """Raise ValueError unless the array is contiguous and of that type and shape."""
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        raise ValueError(
            f"{name} is {array.dtype} {array.shape}"
            f"{'' if array.flags.c_contiguous else ', not contiguous'};"
            f" contiguous {numpy.dtype(dtype)} {shape} is needed"
        )


def address(array: NDArray[Any]) -> int:
    """The address of the array's first element."""
    return int(array.__array_interface__["data"][0])


def _wide(rows: WideRows | None) -> WideRowsStructure:
    if rows is None:
        return WideRowsStructure(0, 0.0, None, None)
    return WideRowsStructure(
        rows.rank, rows.scale, address(rows.vocab_offsets_V), address(rows.hidden_offsets_R)
    )


def _check_rows(name: str, offsets: Int64, widths: Int64 | int, pool_elements: int) -> None:
    wrong = (offsets < 0) | (offsets + widths > pool_elements)
    if wrong.any():
        raise ValueError(
            f"{name} has {offsets[wrong][0]}; a row from there does not lie in the pool's"
            f" {pool_elements} elements"
        )
