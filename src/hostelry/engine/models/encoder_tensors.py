"""From the tensors of a checkpoint to an encoder's weights.

# V vocabulary, H hidden, I intermediate, P positions, N heads, K relative buckets, C classes
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import torch

from hostelry.engine.kernels.weights import Projection
from hostelry.engine.models.checkpoint import TensorFiles
from hostelry.engine.models.encoder_spec import EncoderFamily, EncoderSpec

Shapes = Mapping[str, tuple[int, ...]]
_WORDS, _POSITIONS = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
_TYPES, _NORM = "embeddings.token_type_embeddings.weight", "embeddings.LayerNorm"
_BIAS_TABLE = "encoder.relative_attention_bias.weight"
_UNUSED = (  # buffers, the pooler that no head stands on, and heads for masked tokens
    "embeddings.position_ids", "embeddings.token_type_ids", "pooler.dense.weight",
    "pooler.dense.bias",
)  # fmt: skip
_UNUSED_STARTS = ("cls.", "lm_head.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector.")


class LayerNormWeights(msgspec.Struct, frozen=True, eq=False):
    """Weight and bias of a layer norm, fp32 (H,)."""

    weight_H: torch.Tensor
    bias_H: torch.Tensor


class EncoderLayerWeights(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One layer: h = norm(h + out(attention(qkv(h)))), then h = norm(h + down(act(up(h))))."""

    qkv: Projection
    attention_out: Projection
    attention_norm: LayerNormWeights
    up: Projection
    down: Projection
    out_norm: LayerNormWeights


class EncoderWeights(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """All weights: linear weights and tables in the computing dtype, the rest in fp32.

    `types_H` is the table of token types, if any. `head` are the dense layer and the output of the
    classification head.
    """

    words_VH: torch.Tensor
    positions_PH: torch.Tensor
    types_H: torch.Tensor | None
    norm: LayerNormWeights
    relative_KN: torch.Tensor | None
    layers: tuple[EncoderLayerWeights, ...]
    head: tuple[Projection, Projection] | None


def load_encoder(
    folder: Path, spec: EncoderSpec, *, num_labels: int, dtype: torch.dtype, device: torch.device
) -> EncoderWeights:
    """The weights of the encoder in `folder`, in `dtype` on `device`.

    Raises UnsupportedModelError for a missing, unexpected or wrongly shaped tensor.
    """
    files = TensorFiles(folder, renamed=lambda name: _rename(name, spec))
    shapes = dict(_list_shapes(spec, num_labels))
    files.expect(shapes.items())
    files.ignore(name for name in files.names if name in _UNUSED or _is_unused(name))
    files.finish()
    return _Reader(files, shapes, dtype, device).read_weights(spec)


def _rename(name: str, spec: EncoderSpec) -> str:
    """A tensor's name without the family's prefix, and with the present names of norms."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith("LayerNorm" + old):
            name = name.removesuffix(old) + new
    return name.removeprefix(spec.family.prefix)


def _is_unused(name: str) -> bool:
    return name.startswith(_UNUSED_STARTS)


def _list_head_names(family: EncoderFamily) -> tuple[str, str]:
    dense, output = family.head
    return dense.removeprefix(family.prefix), output


def _list_shapes(spec: EncoderSpec, num_labels: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    family, hidden, inner = spec.family, spec.hidden_size, spec.intermediate_size
    yield _WORDS, (spec.vocab_size, hidden)
    yield _POSITIONS, (spec.num_positions, hidden)
    if spec.num_token_types:
        yield _TYPES, (spec.num_token_types, hidden)
    yield from _list_pair(_NORM, (hidden,), hidden)
    if spec.num_relative_buckets:
        yield _BIAS_TABLE, (spec.num_relative_buckets, spec.num_heads)
    for number in range(spec.num_layers):
        prefix = family.layer.format(number)
        for module in (family.query, family.key, family.value, family.attention_out):
            yield from _list_pair(prefix + module, (hidden, hidden), hidden)
        yield from _list_pair(prefix + family.attention_norm, (hidden,), hidden)
        yield from _list_pair(prefix + family.up, (inner, hidden), inner)
        yield from _list_pair(prefix + family.down, (hidden, inner), hidden)
        yield from _list_pair(prefix + family.out_norm, (hidden,), hidden)
    if spec.has_head:
        dense, output = _list_head_names(family)
        yield from _list_pair(dense, (hidden, hidden), hidden)
        yield from _list_pair(output, (num_labels, hidden), num_labels)


def _list_pair(
    module: str, weight: tuple[int, ...], bias: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{module}.weight", weight
    yield f"{module}.bias", (bias,)


class _Reader:
    """Reads tensors that were checked."""

    def __init__(
        self, files: TensorFiles, shapes: Shapes, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._tensors = files.read(shapes)
        self._dtype = dtype
        self._device = device

    def read_weights(self, spec: EncoderSpec) -> EncoderWeights:
        layers = tuple(self._read_layer(spec.family, number) for number in range(spec.num_layers))
        head = None
        if spec.has_head:
            dense, output = _list_head_names(spec.family)
            head = (self._read_projection(dense), self._read_projection(output))
        return EncoderWeights(
            words_VH=self._read_table(_WORDS),
            positions_PH=self._read_table(_POSITIONS),
            types_H=self._read_table(_TYPES) if spec.num_token_types else None,
            norm=self._read_norm(_NORM),
            relative_KN=self._read_float(_BIAS_TABLE) if spec.num_relative_buckets else None,
            layers=layers,
            head=head,
        )

    def _read_layer(self, family: EncoderFamily, number: int) -> EncoderLayerWeights:
        prefix = family.layer.format(number)
        names = (family.query, family.key, family.value)
        parts = [self._read_projection(prefix + name) for name in names]
        biases = [it.bias_O for it in parts if it.bias_O is not None]
        return EncoderLayerWeights(
            qkv=Projection(
                weight_OI=torch.cat([it.weight_OI for it in parts]), bias_O=torch.cat(biases)
            ),
            attention_out=self._read_projection(prefix + family.attention_out),
            attention_norm=self._read_norm(prefix + family.attention_norm),
            up=self._read_projection(prefix + family.up),
            down=self._read_projection(prefix + family.down),
            out_norm=self._read_norm(prefix + family.out_norm),
        )

    def _read_projection(self, module: str) -> Projection:
        weight_OI, bias_O = self._read_table(f"{module}.weight"), self._read_table(f"{module}.bias")
        return Projection(weight_OI=weight_OI, bias_O=bias_O)

    def _read_norm(self, module: str) -> LayerNormWeights:
        return LayerNormWeights(
            self._read_float(f"{module}.weight"), self._read_float(f"{module}.bias")
        )

    def _read_table(self, name: str) -> torch.Tensor:
        return self._tensors[name].to(dtype=self._dtype, device=self._device)

    def _read_float(self, name: str) -> torch.Tensor:
        return self._tensors[name].to(dtype=torch.float32, device=self._device)
