"""Values between an author's code and the server: responses, replies of handlers, the tokenizer."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from hostelry.base.clock import SystemClock
from hostelry.containers.code.messages import Replied
from hostelry.containers.lmi.code.djl_python.outputs import EncodedChunk, Output
from hostelry.containers.lmi.text_codec import TextCodec

DEFAULT_ERROR = 424


class ResponseRecord(dict[str, Any]):
    """A dictionary whose members are attributes, too. Those inside it likewise."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the response has no field {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        self.pop(name, None)

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """The fields as a dictionary."""
        return dict(self)

    def model_dump_json(self, **_: Any) -> str:
        """The fields as JSON."""
        return write_value(dict(self))


class LmiResponse(ResponseRecord):
    """A response in LMI's form as a dictionary, and in OpenAI's form as attributes."""

    def __init__(self, lmi: dict[str, Any], openai: ResponseRecord) -> None:
        super().__init__(lmi)
        object.__setattr__(self, "_openai", openai)
        object.__setattr__(self, "_first", write_value(openai))

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        return getattr(object.__getattribute__(self, "_openai"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__getattribute__(self, "_openai")[name] = value

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """The fields of the form that was changed, or of LMI's form if neither was changed."""
        openai = object.__getattribute__(self, "_openai")
        is_changed = write_value(openai) != object.__getattribute__(self, "_first")
        return dict(openai) if is_changed else dict(self)

    def model_dump_json(self, **_: Any) -> str:
        """Those fields as JSON."""
        return write_value(self.model_dump())


def response_object(response: bytes, lmi: bytes | None) -> ResponseRecord:
    """The object of a response in OpenAI's form, and in LMI's form if there is one."""
    openai = to_record(json.loads(response))
    return openai if lmi is None else LmiResponse(to_record(json.loads(lmi)), openai)


def to_record(value: Any) -> Any:
    """`value` with every dictionary as a record."""
    if isinstance(value, dict):
        return ResponseRecord({name: to_record(it) for name, it in value.items()})
    if isinstance(value, list):
        return [to_record(it) for it in value]
    return value


def write_value(value: Any) -> str:
    """A value as JSON. Raises ValueError or TypeError for a value that JSON cannot represent."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def formatted_text(result: Any) -> str:
    """The text that a formatter's result stands for. Raises TypeError, ValueError."""
    if isinstance(result, str):
        return result
    for name in ("model_dump_json", "model_dump"):
        if hasattr(result, name):
            result = getattr(result, name)()
            break
    if isinstance(result, str):
        return result
    if not isinstance(result, dict):
        raise TypeError(f"the output formatter returned {type(result).__name__}, not a dict or str")
    return write_value(result)


def whole_reply(call: int, output: Any) -> Replied:
    """The reply by an `Output`. Raises TypeError for any other value."""
    if output is None:
        return Replied(call, is_nothing=True)
    if not isinstance(output, Output):
        raise TypeError(
            f"handle returned {type(output).__name__}; it must return an Output, a generator of "
            "them, or None"
        )
    headers = {str(name): str(value) for name, value in output.get_properties().items()}
    content = output.content.get("data")
    if content is None and not output.content.is_empty():
        content = output.content.value_at(0)
    if isinstance(content, EncodedChunk):
        return chunk_reply(call, content, headers)
    body = bytes(content or b"")
    if output.code != 200 and not body:
        body = json.dumps({"code": output.code, "message": output.message}).encode()
    return Replied(call, body, output.code, headers)


def chunk_reply(call: int, chunk: EncodedChunk, headers: dict[str, str]) -> Replied:
    """The reply by the members of `Output.binary_encode`: data, last, code and error."""
    members = chunk.members
    is_last = str(members.get("last", True)).lower() == "true"
    error = members.get("error")
    status = int(members.get("code") or (DEFAULT_ERROR if error else 200))
    if error:
        body = to_bytes(json.dumps({"code": status, "error": str(error)}, ensure_ascii=False))
        return Replied(call, body, status, headers, is_last=True)
    return Replied(call, to_bytes(str(members.get("data", ""))), status, headers, is_last=is_last)


def item_reply(call: int, item: Any) -> Replied:
    """The reply by an item of a stream: an `Output`, text, bytes, or a value of JSON."""
    if isinstance(item, Output):
        return whole_reply(call, item)
    if isinstance(item, str):
        return Replied(call, to_bytes(item))
    if isinstance(item, bytes | bytearray):
        return Replied(call, bytes(item))
    return Replied(call, to_bytes(json.dumps(item, ensure_ascii=False)))


def to_bytes(text: str) -> bytes:
    """The text in UTF-8. Half of a surrogate pair, which UTF-8 lacks, is escaped as in JSON."""
    return text.encode(errors="backslashreplace")


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
        """A chat as a prompt by the model's template, or its token ids with `tokenize`."""
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
