"""Arguments of the parsers beside the body."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hostelry.containers.lmi.refusal import Surface
from hostelry.containers.lmi.request.adapter_choice import Caller
from hostelry.containers.lmi.request.chat_fields import ChatFields
from hostelry.containers.lmi.request.images import NO_IMAGES, ImageLimits
from hostelry.containers.lmi.request.sampling import MAX_LOGPROBS
from hostelry.containers.lmi.request.sampling_defaults import NEUTRAL, SamplingDefaults
from hostelry.containers.lmi.tools.conventions import Conventions


class ChatRenderer(Protocol):
    """Renders messages as the prompt of a chat model."""

    def render(self, messages: Sequence[Mapping[str, Any]], fields: ChatFields) -> str:
        """The prompt's text, special tokens included; raises Refusal for messages it rejects."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseContext:
    """Configuration, caller and registered adapters as plain values.

    `served` are the names of the base model, `model_name` the one in responses. `fresh_seed` is
    the seed of a request that gives none, `defaults` its other sampling. With `strict_fields` a
    field outside the table of fields is refused; with `trust_chat_template` a request may have a
    template of its own. `template_variables` are those of chat templates in requests that give
    none. `conventions` say how the model writes calls and reasoning, `images` what it reads beside
    text.
    """

    dialect: Surface
    caller: Caller = field(default_factory=Caller)
    registered: Collection[str] = ()
    served: Collection[str] = ("lmi",)
    model_name: str = "lmi"
    tgi_compat: bool = False
    output_formatter: str | None = None
    chat: ChatRenderer | None = None
    fresh_seed: int = 0
    defaults: SamplingDefaults = NEUTRAL
    max_logprobs: int = MAX_LOGPROBS
    strict_fields: bool = False
    trust_chat_template: bool = False
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    conventions: Conventions = field(default_factory=Conventions)
    images: ImageLimits = NO_IMAGES
