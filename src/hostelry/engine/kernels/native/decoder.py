"""A decoder in native code: a whole step in one call.

# T rows, B sequences, P pages a sequence, S rows with logits, V vocabulary, H hidden,
# D head dimension, O output columns
"""

import ctypes
import weakref
from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy
import torch
from numpy.typing import NDArray

from hostelry.engine.kernels.batch import MODULES, ForwardBatch, LoraSegment
from hostelry.engine.kernels.native.gemm import PackedWeight, PackedWeightStructure
from hostelry.engine.kernels.native.library import NativeLibrary, NativeThreads
from hostelry.engine.kernels.native.structures import (
    FAULTS,
    AdapterStructures,
    DecoderStructure,
    LayerStructure,
    RefusalStructure,
    SegmentStructure,
    StepStructure,
    address,
    check_array,
)
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.kernels.weights import DecoderWeights, LayerWeights, Projection, RopeTables

PHASES = ("rows", "shrink", "qkv", "attention", "output", "gate_up", "down", "logits")
"""The phases of `NativeDecoder.phase_seconds`."""

WeightKindName = Literal["auto", "int8"]

_MAX_HEAD_DIM = 256  # kMaxHeadDim in cpp/attention.h
_DTYPES = (torch.float32, torch.bfloat16)


class NativeDecoder:
    """A model on this machine's CPU, its weights packed as they are read.

    See `kernels.decoder.Decoder`. `layers.decoder.TorchDecoder` defines the result. Each row's
    result is the same, bit for bit, in any batch and with any number of threads.
    """

    warnings: Sequence[str] = ()

    def __init__(
        self,
        weights: DecoderWeights,
        *,
        max_rows: int,
        num_threads: int,
        pin_threads: bool = True,
        weight_kind: WeightKindName = "auto",
        variant: str | None = None,
    ) -> None:
        """Pack the weights. Raises ValueError for a model that the kernels do not support."""
        _check_weights(weights, max_rows)
        library = NativeLibrary.load(variant)
        threads = NativeThreads(library, num_threads, pin=pin_threads)
        packing = _Packing(library, threads, weights, weight_kind)
        self._begin(weights, packing, packing.build_structure(max_rows), threads)

    def derive(self, weights: DecoderWeights, modules: Collection[int]) -> "NativeDecoder":
        """A decoder of `weights`, which differ in these linear modules, by number.

        The embedding and lm_head differ if they are other tensors. Everything else is shared,
        threads too: one of the two computes at a time. Any thread may call it. It packs with one
        thread.
        """
        old = self._packing
        alone = NativeThreads(old.library, 1)
        packing = _Packing(old.library, alone, weights, old.kind, shared=old)
        decoder = NativeDecoder.__new__(NativeDecoder)
        structure = packing.derive_structure(self._structure, modules)
        decoder._begin(weights, packing, structure, self._threads)
        return decoder

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights that it does not share with the decoder it was derived from."""
        return self._packing.num_bytes

    def _begin(
        self,
        weights: DecoderWeights,
        packing: "_Packing",
        structure: DecoderStructure,
        threads: NativeThreads,
    ) -> None:
        """Compute with the packed weights of that structure."""
        self.last_greedy_S: NDArray[numpy.int64] = numpy.zeros(0, numpy.int64)
        self.last_finite_S: NDArray[numpy.bool_] = numpy.zeros(0, numpy.bool_)
        self._library = packing.library
        self._threads = threads
        self._packing = packing
        self._structure = structure
        self._vocabulary = len(weights.lm_head_VH)
        self._dtype = weights.dtype
        self._shape = (weights.num_layers, weights.num_kv_heads, weights.head_dim)
        self._adapters = AdapterStructures(
            _list_module_widths(weights), weights.num_layers, weights.hidden_size, self._vocabulary
        )
        self._limits = {"max_rows": structure.max_rows, "positions": structure.positions}
        functions = self._library.functions
        self._handle = functions.hostelry_decoder_new(self._threads.handle, ctypes.byref(structure))
        weakref.finalize(self, functions.hostelry_decoder_free, self._handle)
        self._step = StepStructure()
        self._refusal = RefusalStructure()
        self._segments = (SegmentStructure * 16)()
        self._logits_SV = torch.empty(0, self._vocabulary)
        self._greedy_S = numpy.zeros(0, numpy.int64)
        self._finite_S = numpy.zeros(0, numpy.bool_)
        self._pool: PoolTensor | None = None

    @property
    def num_active_threads(self) -> int:
        """The number of threads that compute the next step (`NativeThreads.num_active`)."""
        return self._threads.num_active

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Seconds spent in each phase of all steps so far."""
        seconds = self._library.functions.hostelry_decoder_seconds(self._handle)
        return {name: seconds[number] for number, name in enumerate(PHASES)}

    def forward(self, batch: ForwardBatch, pool: PoolTensor) -> torch.Tensor:
        """Logits (S, V) fp32, overwritten by the next call.

        Writes keys and values into `pool`. Sets `last_greedy_S` to the first largest column of each
        row, and `last_finite_S` to whether all of the row is finite. Raises ValueError, writing
        nothing, for a batch that breaks a rule of ForwardBatch, or has more than `max_rows` rows.
        """
        step = self._step
        self._set_pool(pool)
        self._set_rows(batch)
        self._set_segments(batch.segments)
        self._reserve(len(batch.logit_rows_S))
        refusal = self._refusal
        self._library.functions.hostelry_decoder_forward(
            self._handle, ctypes.byref(step), ctypes.byref(refusal)
        )
        if refusal.fault:
            raise ValueError(self._build_message(step, refusal))
        num_logits = step.num_logit_rows
        self.last_greedy_S = self._greedy_S[:num_logits]
        self.last_finite_S = self._finite_S[:num_logits]
        return self._logits_SV[:num_logits]

    def _set_pool(self, pool: PoolTensor) -> None:
        if pool is self._pool:
            return
        layout = pool.layout
        shape = (layout.num_layers, layout.num_kv_heads, layout.head_dim)
        if shape != self._shape or layout.dtype != self._dtype or layout.page_tokens < 1:
            raise ValueError(
                f"the pool's pages have (layers, kv heads, head dim) {shape} of {layout.dtype} and"
                f" {layout.page_tokens} tokens; the model needs {self._shape} of {self._dtype}"
            )
        if pool.elements.device.type != "cpu":
            raise ValueError(f"the pool is on {pool.elements.device}; native code needs cpu")
        self._pool = pool
        self._pool_elements = pool.elements.numel()
        self._step.pool = pool.elements.data_ptr()
        self._step.num_pages = pool.num_pages
        self._step.page_tokens = layout.page_tokens

    def _set_rows(self, batch: ForwardBatch) -> None:
        step = self._step
        num_rows, num_sequences = len(batch.token_ids_T), len(batch.lengths_B)
        num_logits = len(batch.logit_rows_S)
        pages_BP = batch.pages_BP
        width = pages_BP.shape[1] if pages_BP.ndim == 2 else 0
        for name, array, shape in (
            ("token_ids_T", batch.token_ids_T, (num_rows,)),
            ("positions_T", batch.positions_T, (num_rows,)),
            ("row_starts_B1", batch.row_starts_B1, (num_sequences + 1,)),
            ("lengths_B", batch.lengths_B, (num_sequences,)),
            ("pages_BP", pages_BP, (num_sequences, width)),
            ("logit_rows_S", batch.logit_rows_S, (num_logits,)),
        ):
            check_array(name, array, numpy.int32, shape)
        step.token_ids = address(batch.token_ids_T)
        step.positions = address(batch.positions_T)
        step.row_starts = address(batch.row_starts_B1)
        step.lengths = address(batch.lengths_B)
        step.pages = address(pages_BP)
        step.logit_rows = address(batch.logit_rows_S)
        step.num_rows = num_rows
        step.num_sequences = num_sequences
        step.pages_per_sequence = width
        step.num_logit_rows = num_logits

    def _set_segments(self, segments: Sequence[LoraSegment]) -> None:
        step = self._step
        if len(segments) > len(self._segments):
            self._segments = (SegmentStructure * (2 * len(segments)))()
        for number, segment in enumerate(segments):
            index = self._adapters.get(segment.index, self._pool_elements)
            self._segments[number] = SegmentStructure(segment.row_start, segment.row_end, index)
        step.segments = ctypes.addressof(self._segments)
        step.num_segments = len(segments)

    def _reserve(self, num_logits: int) -> None:
        if num_logits > len(self._greedy_S):
            self._logits_SV = torch.empty(num_logits, self._vocabulary)
            self._greedy_S = numpy.zeros(num_logits, numpy.int64)
            self._finite_S = numpy.zeros(num_logits, numpy.bool_)
        self._step.logits = self._logits_SV.data_ptr()
        self._step.greedy = address(self._greedy_S)
        self._step.finite = address(self._finite_S)

    def _build_message(self, step: Any, refusal: Any) -> str:
        return FAULTS[refusal.fault].format(
            value=refusal.value,
            index=refusal.index,
            num_rows=step.num_rows,
            num_pages=step.num_pages,
            vocabulary=self._vocabulary,
            **self._limits,
        )


class _Packing:
    """The weights as the library reads them, and the objects that must stay alive for it."""

    def __init__(
        self,
        library: NativeLibrary,
        threads: NativeThreads,
        weights: DecoderWeights,
        weight_kind: WeightKindName,
        shared: "_Packing | None" = None,
    ) -> None:
        self.library = library
        self.kind = weight_kind
        self.num_bytes = 0
        self._threads = threads
        self._weights = weights
        self._shared = shared  # whose memory parts of the structure lie in
        self._kept: list[Any] = []
        self._ropes = [] if shared else [self._rope(tables) for tables in weights.ropes]

    def build_structure(self, max_rows: int) -> DecoderStructure:
        """The whole model's structure. Reads and packs all layers."""
        weights = self._weights
        layers = (LayerStructure * weights.num_layers)()
        for number in range(weights.num_layers):
            layers[number] = self._pack_layer(weights.layer(number))
        return DecoderStructure(
            layers=layers,
            embedding=self._address_embedding(),
            final_norm=self._norm(weights.final_norm_H),
            lm_head=self._pack(weights.lm_head_VH, None),
            num_layers=weights.num_layers,
            num_heads=weights.num_heads,
            num_kv_heads=weights.num_kv_heads,
            head_dim=weights.head_dim,
            hidden=weights.hidden_size,
            intermediate=weights.intermediate_size,
            vocabulary=len(weights.lm_head_VH),
            positions=min(len(tables.cos_PD) for tables in weights.ropes),
            is_bf16=weights.dtype == torch.bfloat16,
            is_gelu=weights.activation == "gelu_tanh",
            max_rows=max_rows,
            norm_eps=weights.norm_eps,
            attention_scale=weights.attention_scale,
            embedding_scale=weights.embedding_scale,
        )

    def derive_structure(
        self, structure: DecoderStructure, modules: Collection[int]
    ) -> DecoderStructure:
        """`structure`, which `shared` made, with these modules of this object's weights."""
        assert self._shared is not None, "the structure is of another object"
        weights, former, count = self._weights, self._shared._weights, len(MODULES)
        layers = (LayerStructure * weights.num_layers)()
        for number in range(weights.num_layers):
            layers[number] = structure.layers[number]
            own = [it for it in range(count) if number * count + it in modules]
            if own:
                parts = self._split_layer(weights.layer(number))
                for module in own:
                    layers[number].modules[module] = self._pack(*parts[module])
        derive_structure = DecoderStructure.from_buffer_copy(structure)
        derive_structure.layers = layers
        if weights.embedding_VH is not former.embedding_VH:
            derive_structure.embedding = self._address_embedding()
        if weights.lm_head_VH is not former.lm_head_VH:
            derive_structure.lm_head = self._pack(weights.lm_head_VH, None)
        return derive_structure

    def _address_embedding(self) -> int:
        """Address of the embedding."""
        embedding_VH = self._weights.embedding_VH.contiguous()
        self._kept.append(embedding_VH)
        self.num_bytes += embedding_VH.nbytes
        return embedding_VH.data_ptr()

    def _pack_layer(self, layer: LayerWeights) -> LayerStructure:
        packed = [self._pack(*part) for part in self._split_layer(layer)]
        cos, sin = self._ropes[layer.rope]
        return LayerStructure(
            input_norm=self._norm(layer.input_norm_H),
            q_norm=self._norm(layer.q_norm_D),
            k_norm=self._norm(layer.k_norm_D),
            attn_out_norm=self._norm(layer.attn_out_norm_H),
            mlp_norm=self._norm(layer.mlp_norm_H),
            mlp_out_norm=self._norm(layer.mlp_out_norm_H),
            cos=cos,
            sin=sin,
            modules=(PackedWeightStructure * len(MODULES))(*packed),
            window=layer.window or 0,
        )

    def _split_layer(self, layer: LayerWeights) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Weight and bias of each module in the order of MODULES."""
        weights = self._weights
        query = weights.num_heads * weights.head_dim
        key = weights.num_kv_heads * weights.head_dim
        inner = weights.intermediate_size
        return [
            *_split_projection(layer.qkv, [query, key, key]),
            *_split_projection(layer.o, [weights.hidden_size]),
            *_split_projection(layer.gate_up, [inner, inner]),
            *_split_projection(layer.down, [weights.hidden_size]),
        ]

    def _pack(self, weight_OI: torch.Tensor, bias_O: torch.Tensor | None) -> PackedWeightStructure:
        packed = PackedWeight(self.library, self._threads, weight_OI, kind=self.kind, bias_O=bias_O)
        self._kept.append(packed)
        self.num_bytes += packed.num_bytes
        return packed.structure

    def _norm(self, weight: torch.Tensor | None) -> int | None:
        return None if weight is None else self._address_floats(weight)

    def _rope(self, tables: RopeTables) -> tuple[int, int]:
        return self._address_floats(tables.cos_PD), self._address_floats(tables.sin_PD)

    def _address_floats(self, tensor: torch.Tensor) -> int:
        """Address of the tensor as contiguous fp32."""
        kept = tensor.detach().to(torch.float32).contiguous()
        self._kept.append(kept)
        return kept.data_ptr()


def _split_projection(
    projection: Projection, columns: list[int]
) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    """Weight and bias of the modules of a fused projection."""
    biases: Sequence[torch.Tensor | None] = [None] * len(columns)
    if projection.bias_O is not None:
        biases = torch.split(projection.bias_O, columns)
    return list(zip(torch.split(projection.weight_OI, columns), biases, strict=True))


def _list_module_widths(weights: DecoderWeights) -> list[tuple[int, int]]:
    """(in-features, out-features) in the order of MODULES."""
    hidden, inner = weights.hidden_size, weights.intermediate_size
    query, key = (heads * weights.head_dim for heads in (weights.num_heads, weights.num_kv_heads))
    widths = {
        "q_proj": (hidden, query),
        "k_proj": (hidden, key),
        "v_proj": (hidden, key),
        "o_proj": (query, hidden),
        "gate_proj": (hidden, inner),
        "up_proj": (hidden, inner),
        "down_proj": (inner, hidden),
    }
    return [widths[name] for name in MODULES]


def _check_weights(weights: DecoderWeights, max_rows: int) -> None:
    if max_rows < 1:
        raise ValueError(f"max_rows is {max_rows}; a step has at least one row")
    if weights.dtype not in _DTYPES or weights.embedding_VH.dtype != weights.dtype:
        raise ValueError(
            f"weights of {weights.dtype} and an embedding of {weights.embedding_VH.dtype};"
            " native code computes in torch.float32 or torch.bfloat16"
        )
    if weights.head_dim % 2 or not 0 < weights.head_dim <= _MAX_HEAD_DIM:
        raise ValueError(
            f"head_dim is {weights.head_dim}; native code needs an even one up to {_MAX_HEAD_DIM}"
        )
    if weights.num_kv_heads < 1 or weights.num_heads % weights.num_kv_heads:
        raise ValueError(
            f"{weights.num_heads} heads share {weights.num_kv_heads} key-value heads; each"
            " key-value head needs the same number"
        )
