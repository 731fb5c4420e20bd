"""The model's tokenizer, without tensor libraries."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer


class TextCodec:
    """Text to token ids and back. `control_tokens` are their ids by their text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder().items()
        self.control_tokens = {token.content: id_ for id_, token in added if token.special}
        self._special = frozenset(self.control_tokens.values())

    @classmethod
    def load(cls, folder: Path) -> "TextCodec":
        """The tokenizer.json of a model folder. Raises ValueError if it is missing."""
        path = folder / "tokenizer.json"
        if not path.exists():
            raise ValueError(
                f"{folder} has no tokenizer.json; save the model's fast tokenizer into it"
            )
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return cls(tokenizer)

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """The ids of `text`. `add_special_tokens` adds the ids that begin and end a text."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def offsets(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """The place at which each token of `encode` begins in `text`, in characters.

        A token that the tokenizer adds begins at the end of the token before.
        """
        encoding = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        offsets: list[int] = []
        end = 0
        added = encoding.special_tokens_mask
        for (first, last), is_added in zip(encoding.offsets, added, strict=True):
            offsets.append(end if is_added and first == last else first)
            end = max(end, last)
        return tuple(offsets)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """The text of `token_ids`."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens))

    def token_text(self, token_id: int) -> str:
        """The text of a single token. Replacement characters if it is part of a character."""
        return self.decode((token_id,), skip_special_tokens=False)

    def token_name(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it. None for an id without a token."""
        name: str | None = self.tokenizer.id_to_token(token_id)
        return name

    def is_special(self, token_id: int) -> bool:
        """True if the token is one of the model's control tokens."""
        return token_id in self._special
