"""The model's tokenizer as an input formatter gets it."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from hostelry.base.clock import SystemClock
from hostelry.containers.lmi.text_codec import TextCodec


class CodeTokenizer:
    """Text to token ids and back, read from the model's folder at the first use.

    It has the methods below and no others of transformers' tokenizers.
    """

    def __init__(self, folder: str) -> None:
        self.name_or_path = folder

    @cached_property
    def codec(self) -> TextCodec:
        """The tokenizer itself."""
        return TextCodec.load(Path(self.name_or_path))

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The members of tokenizer_config.json."""
        path = Path(self.name_or_path, "tokenizer_config.json")
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}

    def __call__(self, text: str, add_special_tokens: bool = True, **_: Any) -> dict[str, Any]:
        """The token ids, and a mask of ones."""
        token_ids = self.encode(text, add_special_tokens)
        return {"input_ids": token_ids, "attention_mask": [1] * len(token_ids)}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The token ids."""
        return list(self.codec.encode(text, add_special_tokens=add_special_tokens))

    def tokenize(self, text: str) -> list[str]:
        """The tokens."""
        encoding = self.codec.tokenizer.encode(text, add_special_tokens=False)
        return [str(token) for token in encoding.tokens]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text."""
        return self.codec.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        tokenize: bool = True,
        add_generation_prompt: bool = False,
    ) -> str | list[int]:
        """A chat as a prompt, by the model's template; its token ids with `tokenize`."""
        from hostelry.containers.lmi.request.chat_fields import ChatFields
        from hostelry.containers.lmi.request.chat_template import load_chat_template

        folder = Path(self.name_or_path)
        template = load_chat_template(folder, None, SystemClock(), folder)
        if template is None:
            raise ValueError("the model has no chat template")
        fields = ChatFields(add_generation_prompt=add_generation_prompt)
        text = template.render(conversation, fields)
        return self.encode(text, add_special_tokens=False) if tokenize else text

    @property
    def bos_token(self) -> str | None:
        """The token that begins a text."""
        return self._token("bos_token")

    @property
    def eos_token(self) -> str | None:
        """The token that ends a text."""
        return self._token("eos_token")

    @property
    def pad_token(self) -> str | None:
        """The token that fills."""
        return self._token("pad_token")

    @property
    def eos_token_id(self) -> int | None:
        """The id of the token that ends a text."""
        token = self.eos_token
        found = None if token is None else self.codec.tokenizer.token_to_id(token)
        return None if found is None else int(found)

    def _token(self, name: str) -> str | None:
        value = self.settings.get(name)
        return value.get("content") if isinstance(value, dict) else value
