"""Encoders of the BERT family, described by their config.json. Each family is a row of a table."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from hostelry.engine.models.dense import read_dtype
from hostelry.engine.models.fields import ConfigFields
from hostelry.engine.models.spec import UnsupportedModelError

EncoderActivation = Literal["gelu", "gelu_tanh", "relu"]
HeadActivation = Literal["tanh", "relu"]
CLASSIFIER = "ForSequenceClassification"

_ACTIVATIONS: Mapping[str, EncoderActivation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
_MOST_LAYERS = 1000
_MOST_BUCKETS = 4096
# Fields of training or of file formats, without effect on the forward pass.
_HARMLESS = (
    "attention_probs_dropout_prob", "classifier_dropout", "directionality", "dropout",
    "finetuning_task", "gradient_checkpointing", "hidden_dropout_prob", "output_past",
    "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type", "qa_dropout", "seq_classif_dropout", "sinusoidal_pos_embds", "tie_weights_",
    "tie_word_embeddings", "torchscript", "max_seq_length", "num_labels", "bos_token_ids",
    "eos_token_ids", "matryoshka_dimensions", "is_matryoshka", "sentence_transformers",
    "sbert_ce_default_activation_function", "type_vocab_size", "layer_norm_eps",
)  # fmt: skip


class EncoderFamily(msgspec.Struct, frozen=True, kw_only=True):
    """Names of one family: of fields in config.json, and of tensors within the model.

    `prefix` comes before every name in a checkpoint with a head. `layer` holds "{}" for the number.
    With `positions_after_pad` the first token has the position after the position of the padding
    id, which is `fixed_pad` or the config's pad_token_id. `head` are the dense layer and the output
    of the classification head. The fields from `hidden_size` to `activation` are names of
    config.json.
    """

    name: str
    model_type: str
    prefix: str
    layer: str
    query: str
    key: str
    value: str
    attention_out: str
    attention_norm: str
    up: str
    down: str
    out_norm: str
    head: tuple[str, str]
    head_activation: HeadActivation = "tanh"
    hidden_size: str = "hidden_size"
    intermediate_size: str = "intermediate_size"
    num_layers: str = "num_hidden_layers"
    num_heads: str = "num_attention_heads"
    activation: str = "hidden_act"
    has_token_types: bool = True
    positions_after_pad: bool = False
    fixed_pad: int | None = None
    fixed_eps: float | None = None
    has_relative_bias: bool = False
    default_max_len: int = 512


_ROBERTA_HEAD = ("classifier.dense", "classifier.out_proj")
BERT = EncoderFamily(
    name="Bert",
    model_type="bert",
    prefix="bert.",
    layer="encoder.layer.{}.",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    attention_out="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    up="intermediate.dense",
    down="output.dense",
    out_norm="output.LayerNorm",
    head=("bert.pooler.dense", "classifier"),
)
ROBERTA = replace(
    BERT,
    name="Roberta",
    model_type="roberta",
    prefix="roberta.",
    head=_ROBERTA_HEAD,
    positions_after_pad=True,
)
XLM_ROBERTA = replace(ROBERTA, name="XLMRoberta", model_type="xlm-roberta")
DISTILBERT = EncoderFamily(
    name="DistilBert",
    model_type="distilbert",
    prefix="distilbert.",
    layer="transformer.layer.{}.",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_out="attention.out_lin",
    attention_norm="sa_layer_norm",
    up="ffn.lin1",
    down="ffn.lin2",
    out_norm="output_layer_norm",
    head=("pre_classifier", "classifier"),
    head_activation="relu",
    hidden_size="dim",
    intermediate_size="hidden_dim",
    num_layers="n_layers",
    num_heads="n_heads",
    activation="activation",
    has_token_types=False,
    fixed_eps=1e-12,
)
MPNET = EncoderFamily(
    name="MPNet",
    model_type="mpnet",
    prefix="mpnet.",
    layer="encoder.layer.{}.",
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    attention_out="attention.attn.o",
    attention_norm="attention.LayerNorm",
    up="intermediate.dense",
    down="output.dense",
    out_norm="output.LayerNorm",
    head=_ROBERTA_HEAD,
    has_token_types=False,
    positions_after_pad=True,
    fixed_pad=1,
    has_relative_bias=True,
)
FAMILIES = (BERT, ROBERTA, XLM_ROBERTA, DISTILBERT, MPNET)


class EncoderSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An encoder's shape and constants.

    Lengths are in tokens, `dtype` is of the stored weights. `num_positions` counts rows of the
    position table, of which a text may use `max_model_len`. `num_relative_buckets` 0: attention has
    no relative bias.
    """

    family: EncoderFamily
    has_head: bool
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_positions: int
    num_token_types: int
    num_relative_buckets: int
    pad_token_id: int
    norm_eps: float
    activation: EncoderActivation
    max_model_len: int
    dtype: str
    eos_token_ids: tuple[int, ...] = ()


def find_encoder_family(name: str) -> EncoderFamily | None:
    """The family of an architecture's name or model type. None for a decoder."""
    for family in FAMILIES:
        if name in (family.model_type, family.name + "Model", family.name + CLASSIFIER):
            return family
        if name == family.name + "ForMaskedLM":
            return family
    return None


def read_encoder_spec(config: Mapping[str, Any], family: EncoderFamily, name: str) -> EncoderSpec:
    """The spec in a parsed config.json of `family`, whose architecture is called `name`.

    Raises UnsupportedModelError for a value that is not supported, and for a field that is set and
    may change the result.
    """
    fields = ConfigFields(config)
    for harmless in _HARMLESS:
        fields.value(harmless)
    for flag in ("is_decoder", "add_cross_attention"):
        if fields.flag(flag, default=False):
            raise UnsupportedModelError(f"config.json: {flag} is true; an encoder is expected")
    fields.choice("position_embedding_type", ("absolute",), "absolute")
    num_layers = fields.positive(family.num_layers, 12)
    if num_layers > _MOST_LAYERS:
        raise UnsupportedModelError(
            f"config.json: {family.num_layers} is {num_layers}; at most {_MOST_LAYERS} is supported"
        )
    hidden_size = fields.positive(family.hidden_size)
    num_heads = fields.positive(family.num_heads, 12)
    if hidden_size % num_heads:
        raise UnsupportedModelError(
            f"config.json: {family.hidden_size} {hidden_size} is no multiple of "
            f"{family.num_heads} {num_heads}"
        )
    pad = family.fixed_pad if family.fixed_pad is not None else _read_pad(fields, family)
    num_positions = fields.positive("max_position_embeddings", family.default_max_len)
    max_len = num_positions - (pad + 1 if family.positions_after_pad else 0)
    if max_len < 1:
        raise UnsupportedModelError(
            f"config.json: max_position_embeddings is {num_positions}; with pad_token_id {pad} "
            "none is left for a text"
        )
    eps = family.fixed_eps or fields.number("layer_norm_eps", 1e-12)
    activation = fields.choice(family.activation, tuple(_ACTIVATIONS), "gelu")
    buckets = fields.positive("relative_attention_num_buckets", 32)
    spec = EncoderSpec(
        family=family,
        has_head=name.endswith(CLASSIFIER),
        vocab_size=fields.positive("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=fields.positive(family.intermediate_size),
        num_layers=num_layers,
        num_heads=num_heads,
        num_positions=num_positions,
        num_token_types=fields.positive("type_vocab_size", 2) if family.has_token_types else 0,
        num_relative_buckets=min(buckets, _MOST_BUCKETS) if family.has_relative_bias else 0,
        pad_token_id=pad,
        norm_eps=eps,
        activation=_ACTIVATIONS[activation],
        max_model_len=max_len,
        dtype=read_dtype(fields),
    )
    fields.finish()
    return spec


def _read_pad(fields: ConfigFields, family: EncoderFamily) -> int:
    value = fields.value("pad_token_id", 1 if family.positions_after_pad else 0)
    if type(value) is not int or value < 0:
        raise UnsupportedModelError(
            f"config.json: pad_token_id is {value!r}; it must be a token id"
        )
    return value
