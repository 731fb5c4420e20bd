"""The parts of config.json that all dense decoders share."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.engine.models.fields import ConfigFields, quote
from hostelry.engine.models.rope_fields import read_rope
from hostelry.engine.models.spec import DTYPE_NAMES, ModelSpec, RopeSpec, UnsupportedModelError

_MOST_LAYERS = 1000
FULL, SLIDING = "full_attention", "sliding_attention"


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of transformers for absent fields.

    `num_kv_heads` None is the number of heads, `head_dim` None the hidden size / heads.
    """

    max_len: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    tie_embeddings: bool = False


def read_dense_spec(
    fields: ConfigFields,
    generation: Mapping[str, Any],
    architecture: str,
    defaults: Defaults,
    ropes: tuple[RopeSpec, ...] = (),
) -> ModelSpec:
    """A spec with full attention, silu and no biases.

    Architectures replace the differences. Without `ropes` one rope is read from `fields`. Raises
    UnsupportedModelError for sizes that do not fit together.
    """
    num_layers = fields.positive("num_hidden_layers")
    if num_layers > _MOST_LAYERS:
        raise UnsupportedModelError(
            f"config.json: num_hidden_layers is {num_layers}; at most {_MOST_LAYERS} is supported"
        )
    hidden_size = fields.positive("hidden_size")
    num_heads = fields.positive("num_attention_heads")
    head_dim = _read_head_dim(fields, hidden_size, num_heads, defaults.head_dim)
    max_len = fields.positive("max_position_embeddings", defaults.max_len)
    return ModelSpec(
        architecture=architecture,
        vocab_size=fields.positive("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=fields.positive("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_read_num_kv_heads(fields, num_heads, defaults.num_kv_heads),
        head_dim=head_dim,
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        ropes=ropes or (read_rope(fields, 10_000.0, max_len),),
        layer_ropes=(0,) * num_layers,
        windows=(None,) * num_layers,
        activation="silu",
        attention_scale=head_dim**-0.5,
        embedding_scale=1.0,
        tie_embeddings=fields.flag("tie_word_embeddings", default=defaults.tie_embeddings),
        attention_bias=False,
        output_bias=False,
        mlp_bias=False,
        max_model_len=max_len,
        eos_token_ids=_read_eos_token_ids(fields, generation),
        dtype=read_dtype(fields),
    )


def read_layer_types(fields: ConfigFields, default: tuple[str, ...]) -> tuple[str, ...]:
    """Each layer's kind of attention, FULL or SLIDING. `default` if the field is absent."""
    types = fields.value("layer_types")
    if types is None:
        return default
    if not isinstance(types, list) or len(types) != len(default):
        raise UnsupportedModelError(
            f"config.json: layer_types is {quote(types)}; it must name {len(default)} layers"
        )
    for kind in types:
        if kind not in (FULL, SLIDING):
            raise UnsupportedModelError(
                f"config.json: layer_types {quote(kind)} is not supported; {FULL} and {SLIDING} are"
            )
    return tuple(types)


def get_layer_windows(types: tuple[str, ...], window: int | None) -> tuple[int | None, ...]:
    """The window of each layer. Raises UnsupportedModelError for a sliding layer without one."""
    if SLIDING in types and window is None:
        raise UnsupportedModelError(
            f"config.json: layer_types has {SLIDING}, and sliding_window is null or not used"
        )
    return tuple(window if kind == SLIDING else None for kind in types)


def _read_head_dim(
    fields: ConfigFields, hidden_size: int, num_heads: int, default: int | None
) -> int:
    head_dim = fields.positive_or_null("head_dim", default)
    if head_dim is None:
        if hidden_size % num_heads:
            raise UnsupportedModelError(
                f"config.json: hidden_size {hidden_size} is no multiple of "
                f"num_attention_heads {num_heads}, and head_dim is not given"
            )
        head_dim = hidden_size // num_heads
    if head_dim % 2:
        raise UnsupportedModelError(
            f"config.json: head_dim {head_dim} is odd; rotary embeddings need pairs"
        )
    return head_dim


def _read_num_kv_heads(fields: ConfigFields, num_heads: int, default: int | None) -> int:
    num_kv_heads = fields.positive_or_null("num_key_value_heads", default) or num_heads
    if num_heads % num_kv_heads:
        raise UnsupportedModelError(
            f"config.json: num_attention_heads {num_heads} is no multiple of "
            f"num_key_value_heads {num_kv_heads}"
        )
    return num_kv_heads


def _read_eos_token_ids(fields: ConfigFields, generation: Mapping[str, Any]) -> tuple[int, ...]:
    """The generation config's end tokens, else the model config's, if any."""
    value = generation.get("eos_token_id")
    if value is None:
        value = fields.value("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(it) is not int or it < 0 for it in ids):
        raise UnsupportedModelError(
            f"eos_token_id is {quote(value)}; it must be a token id, or a list of them"
        )
    return tuple(ids)


def read_dtype(fields: ConfigFields) -> str:
    """The dtype of the stored weights, as config.json names it."""
    name = fields.value("dtype") or fields.value("torch_dtype") or "float32"
    if not isinstance(name, str) or name not in DTYPE_NAMES:
        raise UnsupportedModelError(
            f"config.json: dtype {quote(name)} is not supported; float32, bfloat16, float16"
        )
    return DTYPE_NAMES[name]
