"""Chooses a response's form by schema and formatter. Each dialect has a file.

schema, formatter                             form
--------------------------------------------  ------------------------------------------------
any schema, `3p` or `none`                    one text: `lmi_form.py`
inputs, a formatter of chats                  OpenAI's chat completion: `openai_form.py`
inputs, another formatter                     LMI's: `lmi_form.py`
prompt, messages                              OpenAI's: `openai_form.py`
input                                         OpenAI's Responses: `responses_form.py`
"""

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.base.ids import new_request_id
from hostelry.containers.lmi.refusal import Surface
from hostelry.containers.lmi.request.invocation import AnswerForm, Formatter, Schema
from hostelry.containers.lmi.response.forms import JSON, StreamForm
from hostelry.containers.lmi.response.generated import GeneratedSequence
from hostelry.containers.lmi.response.lmi_form import (
    TEXT,
    LmiForm,
    LmiStream,
    OneTextStream,
    third_party,
)
from hostelry.containers.lmi.response.openai_form import OpenAIForm, OpenAIStream
from hostelry.containers.lmi.response.responses_form import ResponsesForm, ResponsesStream
from hostelry.containers.lmi.settings.config import ImageKind, LmiConfig
from hostelry.containers.lmi.text_codec import TextCodec


class AnswerForms(msgspec.Struct, frozen=True, kw_only=True):
    """The forms of one response. `now` is its time in seconds since the epoch."""

    form: AnswerForm
    config: LmiConfig
    codec: TextCodec
    surface: Surface
    now: float

    @property
    def content_type(self) -> str:
        """The media type of a response that is not streamed."""
        return TEXT if self.form.formatter is Formatter.TEXT else JSON

    def whole(
        self, chosen: Sequence[GeneratedSequence], generated: Sequence[GeneratedSequence]
    ) -> bytes:
        """The body of a response with the `chosen` sequences of all that were generated."""
        formatter = self.form.formatter
        content: Any
        if formatter is Formatter.TEXT:
            return (chosen[0].prompt_text * self.form.full_text + chosen[0].text).encode()
        if formatter is Formatter.THIRD_PARTY:
            content = third_party(chosen[0], self.form.full_text)
        elif self._is_lmi:
            content = self._lmi.whole(chosen)
        elif self.form.schema is Schema.RESPONSES:
            content = self._build_responses().whole(chosen[0])
        else:
            content = self._build_openai().whole(chosen, generated)
        end = b"\n" if self.surface is Surface.ASYNC else b""
        return msgspec.json.encode(content) + end

    def values_for_code(
        self, chosen: Sequence[GeneratedSequence], generated: Sequence[GeneratedSequence]
    ) -> tuple[Any, Any]:
        """The response in OpenAI's form and in LMI's (None for another schema than inputs)."""
        is_inputs = self.form.schema is Schema.INPUTS
        lmi = self._lmi.whole(chosen) if is_inputs else None
        return self._build_openai().whole(chosen, generated), lmi

    def stream(self) -> StreamForm:
        """The form of a streamed response."""
        formatter = self.form.formatter
        if formatter.is_one_text:
            is_counted = formatter is Formatter.THIRD_PARTY_STREAM
            return OneTextStream(is_counted, self.form.full_text)
        if self._is_lmi:
            return LmiStream(self._lmi, sse=formatter is Formatter.SSE)
        if self.form.schema is Schema.RESPONSES:
            return ResponsesStream(self._build_responses())
        sse = self.surface is Surface.OPENAI or self.config.tgi_compat
        sse = sse or Formatter.SSE_CHAT.value in (formatter.value, self.config.output_formatter)
        return OpenAIStream(self._build_openai(), sse)

    def stream_for_code(self) -> StreamForm:
        """The form of a stream whose events an author's output formatter gets."""
        return OpenAIStream(self._build_openai(), sse=True)

    @property
    def _is_lmi(self) -> bool:
        return self.form.schema is Schema.INPUTS and not self.form.formatter.is_chat

    @property
    def _lmi(self) -> LmiForm:
        return LmiForm(
            self.form,
            self.config.dialect,
            self.codec.token_text,
            self.codec.is_special,
            is_tgi=self.config.image is ImageKind.TGI,
        )

    def _build_openai(self) -> OpenAIForm:
        form = self.form
        form = replace(form, schema=Schema.CHAT) if form.formatter.is_chat else form
        prefix = "chatcmpl-" if form.schema is Schema.CHAT else "cmpl-"
        return OpenAIForm(
            form=form,
            id=prefix + (form.request_id or new_request_id()),
            created=int(self.now),
            token_text=token_name if form.tokens_as_ids else self.codec.token_text,
            lmi_names=self.surface is Surface.LEGACY and self.config.image is ImageKind.LMI,
        )

    def _build_responses(self) -> ResponsesForm:
        id = secrets.token_hex(16)
        return ResponsesForm(
            form=self.form,
            id=f"resp_{id}",
            message_id=f"msg_{id}",
            created=int(self.now),
            token_text=self.codec.token_text,
        )


def token_name(token_id: int) -> str:
    """A token as vLLM names it for clients that cannot read its text."""
    return f"token_id:{token_id}"
