"""A model's vocabulary as text, from its tokenizer.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from hostelry.engine.sampling.grammar import GrammarError
from hostelry.engine.sampling.xgrammar_binding import Vocabulary


def load_vocabulary(folder: Path, *, vocab_size: int, end_token_ids: Sequence[int]) -> Vocabulary:
    """The first `vocab_size` tokens of the tokenizer in `folder`.

    An added token has its text, a control token an empty one. Raises GrammarError for a model
    without end tokens or without a tokenizer.
    """
    path = folder / "tokenizer.json"
    if not path.exists():
        raise GrammarError(f"structured output needs tokenizer.json, which {folder} has not")
    ends = tuple(token_id for token_id in end_token_ids if token_id < vocab_size)
    if not ends:
        raise GrammarError("structured output needs a token that ends the text; the model has none")
    tokenizer = Tokenizer.from_file(str(path))
    tokens = [""] * vocab_size
    for text, token_id in tokenizer.get_vocab(with_added_tokens=True).items():
        if token_id < vocab_size:
            tokens[token_id] = text
    added = {
        token_id: token
        for token_id, token in tokenizer.get_added_tokens_decoder().items()
        if token_id < vocab_size
    }
    for token_id, token in added.items():
        is_text = not token.special and token_id not in ends
        tokens[token_id] = token.content if is_text else ""
    settings = msgspec.json.decode(tokenizer.to_str())
    parts = _list_parts(settings.get("decoder"))
    kind = "raw"
    if "ByteLevel" in parts:
        kind = "byte_level"
    elif "ByteFallback" in parts:
        kind = "byte_fallback"
    return Vocabulary(
        tokens=tuple(tokens),
        kind=kind,
        added=tuple(token_id for token_id in added if tokens[token_id]),
        control=tuple(it for it, token in added.items() if token.special and it not in ends),
        adds_prefix_space="Prepend" in _list_parts(settings.get("normalizer")),
        end_token_ids=ends,
    )


def _list_parts(setting: Any) -> list[str]:
    """The types of a part of a tokenizer, and of the members if it is a sequence."""
    if not isinstance(setting, dict):
        return []
    inner = [*setting.get("decoders", []), *setting.get("normalizers", [])]
    return [str(setting.get("type")), *(name for part in inner for name in _list_parts(part))]
