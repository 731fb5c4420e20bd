"""Gemma 3, text only: norms around both halves of a layer, local and global layers in turn.

Local layers see a window and have a separate rope. Norms multiply by 1 + w, embeddings by the
square root of the hidden size.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hostelry.engine.models.architecture import Architecture
from hostelry.engine.models.dense import (
    FULL,
    SLIDING,
    Defaults,
    get_layer_windows,
    read_dense_spec,
    read_layer_types,
)
from hostelry.engine.models.fields import ConfigFields, quote
from hostelry.engine.models.rope_fields import parse_rope
from hostelry.engine.models.spec import ModelSpec, RopeSpec, UnsupportedModelError
from hostelry.engine.models.tensors import NormNames

_NAME = "Gemma3ForCausalLM"
_GLOBAL_THETA, _LOCAL_THETA = 1_000_000.0, 10_000.0


def _read_spec(fields: ConfigFields, generation: Mapping[str, Any]) -> ModelSpec:
    max_len = fields.positive("max_position_embeddings", 131_072)
    ropes = _read_ropes(fields, max_len)
    defaults = Defaults(max_len=131_072, num_kv_heads=4, head_dim=256, tie_embeddings=True)
    spec = read_dense_spec(fields, generation, _NAME, defaults, ropes)
    fields.choice("hidden_activation", ("gelu_pytorch_tanh",), "gelu_pytorch_tanh")
    types = read_layer_types(fields, _read_pattern(fields, spec.num_layers))
    has_bias = fields.flag("attention_bias", default=False)
    return replace(
        spec,
        layer_ropes=tuple(int(kind == SLIDING) for kind in types),
        windows=get_layer_windows(types, fields.positive_or_null("sliding_window", 4096)),
        activation="gelu_tanh",
        attention_scale=fields.number("query_pre_attn_scalar", 256) ** -0.5,
        embedding_scale=spec.hidden_size**0.5,
        attention_bias=has_bias,
        output_bias=has_bias,
    )


def _read_pattern(fields: ConfigFields, num_layers: int) -> tuple[str, ...]:
    """Every sixth layer is global, unless sliding_window_pattern says otherwise."""
    period = fields.positive("sliding_window_pattern", 6)
    return tuple(SLIDING if (index + 1) % period else FULL for index in range(num_layers))


def _read_ropes(fields: ConfigFields, max_len: int) -> tuple[RopeSpec, RopeSpec]:
    """The global rope and the local rope. Older files scale the global rope only."""
    newer = fields.mapping("rope_parameters")
    for name, value in newer.items():
        if name not in (FULL, SLIDING) or not isinstance(value, dict | None):
            raise UnsupportedModelError(
                f"config.json: rope_parameters {name} {quote(value)} is not supported"
            )
    older = fields.mapping("rope_scaling")
    global_theta = fields.number("rope_theta", _GLOBAL_THETA)
    local_theta = fields.number("rope_local_base_freq", _LOCAL_THETA)
    return (
        parse_rope({**(newer.get(FULL) or {}), **older}, global_theta, max_len),
        parse_rope(newer.get(SLIDING) or {}, local_theta, max_len),
    )


GEMMA3 = Architecture(
    name=_NAME,
    model_type="gemma3_text",
    read_spec=_read_spec,
    norms=NormNames(
        mlp="pre_feedforward_layernorm.weight",
        attn_out="post_attention_layernorm.weight",
        mlp_out="post_feedforward_layernorm.weight",
        has_heads=True,
        offset=1.0,
    ),
)
