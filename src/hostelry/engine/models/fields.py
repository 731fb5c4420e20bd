"""The fields of a config.json, read one by one. A field that is set and was not read is refused."""

from collections.abc import Mapping
from typing import Any

from hostelry.engine.models.spec import UnsupportedModelError

_LARGEST = 1 << 24  # larger than any size of a model. Bounds the memory for invalid values
_TOO_LONG = 120  # characters of a value that a message shows

# Fields without effect on the forward pass: training, generation defaults, provenance.
_HARMLESS = frozenset(
    (
        "architectures",
        "attention_dropout",
        "attn_implementation",
        "bos_token_id",
        "cache_implementation",
        "dtype",
        "eos_token_id",
        "hidden_dropout",
        "id2label",
        "initializer_range",
        "is_llama_config",
        "keys_to_ignore_at_inference",
        "label2id",
        "license",
        "max_length",
        "max_sequence_length",
        "mlp_dropout",
        "model_max_length",
        "model_type",
        "neftune_noise_alpha",
        "num_beams",
        "pad_token_id",
        "padding_side",
        "pretraining_tp",
        "problem_type",
        "return_dict",
        "sep_token_id",
        "seq_length",
        "temperature",
        "tokenizer_class",
        "tokenizer_model_max_length",
        "tokenizer_padding_side",
        "top_k",
        "top_p",
        "torch_dtype",
        "transformers_version",
        "unk_token_id",
        "use_bfloat16",
        "use_cache",
        # Older versions of transformers wrote these into every config.json.
        "chunk_size_feed_forward",
        "diversity_penalty",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "length_penalty",
        "min_length",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_return_sequences",
        "repetition_penalty",
        "typical_p",
    )
)
_HARMLESS_STARTS = ("_", "transformers.", "unsloth_")


class ConfigFields:
    """A parsed config.json that remembers which fields were read.

    An absent field takes the default that transformers gives it. Every reader raises
    UnsupportedModelError with the field and its value.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._read: set[str] = set()

    def value(self, name: str, default: Any = None) -> Any:
        """The field's value. null is a value too."""
        self._read.add(name)
        return self._config.get(name, default)

    def positive(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        value = self.value(name, default)
        if type(value) is not int or value < 1:
            raise UnsupportedModelError(
                f"config.json: {name} is {quote(value)}; it must be a positive integer"
            )
        if value > _LARGEST:
            raise UnsupportedModelError(
                f"config.json: {name} is {value}; at most {_LARGEST} is supported"
            )
        return value

    def positive_or_null(self, name: str, default: int | None) -> int | None:
        """A whole number of at least 1, or None."""
        return None if self.value(name, default) is None else self.positive(name, default)

    def number(self, name: str, default: float) -> float:
        """A number above 0."""
        value = self.value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            raise UnsupportedModelError(
                f"config.json: {name} is {quote(value)}; it must be a positive number"
            )
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false. null is false."""
        value = self.value(name, default)
        if value is not None and not isinstance(value, bool):
            raise UnsupportedModelError(
                f"config.json: {name} is {quote(value)}; it must be true or false"
            )
        return bool(value)

    def choice(self, name: str, supported: tuple[str, ...], default: str) -> str:
        """One of `supported`."""
        value = self.value(name, default)
        if value not in supported:
            verb = "is" if len(supported) == 1 else "are"
            raise UnsupportedModelError(
                f"config.json: {name} {quote(value)} is not supported; "
                f"{' and '.join(supported)} {verb}"
            )
        return str(value)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """An object. {} if it is absent or null."""
        value = self.value(name)
        if value is not None and not isinstance(value, dict):
            raise UnsupportedModelError(
                f"config.json: {name} is {quote(value)}; it must be an object"
            )
        return value or {}

    def finish(self) -> None:
        """Raise UnsupportedModelError at the first field that is set and was not read."""
        for name, value in self._config.items():
            if name in self._read or name in _HARMLESS or name.startswith(_HARMLESS_STARTS):
                continue
            if value is not None and value is not False and value not in ({}, [], ""):
                raise UnsupportedModelError(f"config.json: {name} {quote(value)} is not supported")


def quote(value: object) -> str:
    """The value for a message: text bare, the rest as Python writes it, cut if it is long."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _TOO_LONG else f"{text[:_TOO_LONG]}..."
