"""Structures passed to the native decoder, as declared in cpp/step.h, lora.h and gemm.h."""

import ctypes
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from typing import ClassVar

from hostelry.engine.kernels.batch import MODULES
from hostelry.engine.kernels.native.gemm import PackedWeightStructure

_Fields = list[tuple[str, type]]


class WideRowsStructure(ctypes.Structure):
    """An update over the vocabulary; rank 0: none."""

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
    """One layer's weights; window 0: all positions."""

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
    """All of a decoder; the library copies it and its layers, not what they point to."""

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
    """Why a step was refused; `fault` indexes `FAULTS`."""

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
