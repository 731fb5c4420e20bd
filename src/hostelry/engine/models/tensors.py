"""From the tensors of a checkpoint to a decoder's weights, for architectures of one family.

# V vocabulary, H hidden, O fused output columns, I in-features, D head dimension
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import torch

from hostelry.engine.kernels.weights import LayerWeights, Projection
from hostelry.engine.models.checkpoint import TensorFiles
from hostelry.engine.models.spec import ModelSpec

EMBEDDING, FINAL_NORM, LM_HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
SCORE = "score.weight"
_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_GATE_UP = ("mlp.gate_proj", "mlp.up_proj")
_Q_NORM, _K_NORM = "self_attn.q_norm.weight", "self_attn.k_norm.weight"
_INPUT_NORM = "input_layernorm.weight"


class NormNames(msgspec.Struct, frozen=True, kw_only=True):
    """The norms of an architecture's layer.

    None: no norm at that place. `offset` is added to the stored weights (Gemma stores w and
    multiplies by 1 + w).
    """

    mlp: str = "post_attention_layernorm.weight"
    attn_out: str | None = None
    mlp_out: str | None = None
    has_heads: bool = False
    offset: float = 0.0


def list_expected_shapes(
    spec: ModelSpec, norms: NormNames
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor the model must have, in the order they are computed with."""
    yield EMBEDDING, (spec.vocab_size, spec.hidden_size)
    for index in range(spec.num_layers):
        for name, shape in _list_layer_shapes(spec, norms).items():
            yield f"{_get_prefix(index)}{name}", shape
    yield FINAL_NORM, (spec.hidden_size,)
    if not spec.tie_embeddings:
        yield LM_HEAD, (spec.vocab_size, spec.hidden_size)


def list_redundant_names(spec: ModelSpec) -> Iterator[str]:
    """Tensors of some checkpoints that config.json makes redundant."""
    for index in range(spec.num_layers):
        yield f"{_get_prefix(index)}self_attn.rotary_emb.inv_freq"
    if spec.tie_embeddings:
        yield LM_HEAD


class DecoderTensors:
    """A model's tensors, read on demand: linear weights in `dtype`, the rest in fp32.

    A tensor stays mapped if the file has its dtype and device, and nothing is fused.
    """

    def __init__(
        self,
        files: TensorFiles,
        spec: ModelSpec,
        norms: NormNames,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._files = files
        self._norms = norms
        self._shapes = _list_layer_shapes(spec, norms)
        self._windows = spec.windows
        self._ropes = spec.layer_ropes
        self._dtype = dtype
        self._device = device

    def table(self, name: str) -> torch.Tensor:
        """The embedding or lm_head, (V, H)."""
        return self._files.read([name])[name].to(dtype=self._dtype, device=self._device)

    def final_norm(self) -> torch.Tensor:
        """The weights of the norm before lm_head, (H,)."""
        return self._convert_norm(self._files.read([FINAL_NORM])[FINAL_NORM])

    def layer(self, index: int) -> LayerWeights:
        """Layer `index`, read now. Raises UnsupportedModelError for files changed since."""
        prefix = _get_prefix(index)
        stored = self._files.read(prefix + name for name in self._shapes)
        tensors = {name.removeprefix(prefix): tensor for name, tensor in stored.items()}
        norms = self._norms
        return LayerWeights(
            input_norm_H=self._convert_norm(tensors[_INPUT_NORM]),
            qkv=self._read_projection(tensors, _QKV),
            q_norm_D=self._convert_norm(tensors[_Q_NORM]) if norms.has_heads else None,
            k_norm_D=self._convert_norm(tensors[_K_NORM]) if norms.has_heads else None,
            o=self._read_projection(tensors, ("self_attn.o_proj",)),
            attn_out_norm_H=self._convert_norm(tensors[norms.attn_out]) if norms.attn_out else None,
            mlp_norm_H=self._convert_norm(tensors[norms.mlp]),
            gate_up=self._read_projection(tensors, _GATE_UP),
            down=self._read_projection(tensors, ("mlp.down_proj",)),
            mlp_out_norm_H=self._convert_norm(tensors[norms.mlp_out]) if norms.mlp_out else None,
            window=self._windows[index],
            rope=self._ropes[index],
        )

    def _convert_norm(self, stored: torch.Tensor) -> torch.Tensor:
        weight = stored.to(dtype=torch.float32, device=self._device)
        return weight + self._norms.offset if self._norms.offset else weight

    def _read_projection(
        self, tensors: Mapping[str, torch.Tensor], modules: Sequence[str]
    ) -> Projection:
        weights = [tensors[f"{it}.weight"].to(self._dtype) for it in modules]
        biases = [tensors[f"{it}.bias"].float() for it in modules if f"{it}.bias" in tensors]
        return Projection(
            weight_OI=_fuse(weights).to(self._device),
            bias_O=_fuse(biases).to(self._device) if biases else None,
        )


def _get_prefix(index: int) -> str:
    return f"model.layers.{index}."


def _list_layer_shapes(spec: ModelSpec, norms: NormNames) -> dict[str, tuple[int, ...]]:
    """Shapes of a layer's tensors, by name within the layer."""
    hidden, intermediate = spec.hidden_size, spec.intermediate_size
    query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    linears = (
        ("self_attn.q_proj", query, hidden, spec.attention_bias),
        ("self_attn.k_proj", key, hidden, spec.attention_bias),
        ("self_attn.v_proj", key, hidden, spec.attention_bias),
        ("self_attn.o_proj", hidden, query, spec.output_bias),
        ("mlp.gate_proj", intermediate, hidden, spec.mlp_bias),
        ("mlp.up_proj", intermediate, hidden, spec.mlp_bias),
        ("mlp.down_proj", hidden, intermediate, spec.mlp_bias),
    )
    shapes: dict[str, tuple[int, ...]] = {}
    for module, out_features, in_features, has_bias in linears:
        shapes[f"{module}.weight"] = (out_features, in_features)
        if has_bias:
            shapes[f"{module}.bias"] = (out_features,)
    for norm in (_INPUT_NORM, norms.mlp, norms.attn_out, norms.mlp_out):
        if norm is not None:
            shapes[norm] = (hidden,)
    if norms.has_heads:
        shapes[_Q_NORM] = shapes[_K_NORM] = (spec.head_dim,)
    return shapes


def _fuse(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))
