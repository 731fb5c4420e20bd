"""What parsing a body needs to know beside the body."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hostelry.containers.lmi.refusal import Surface
from hostelry.containers.lmi.request.adapter_choice import Caller


class ChatRenderer(Protocol):
    """Turns messages into the text the model was trained on."""

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> str:
        """The prompt's text, special tokens included; raises Refusal when the template objects."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseContext:
    """Configuration, caller and registry as plain values.

    `served` are the names the base model goes by, `model_name` the one answers carry. `fresh_seed`
    is used by a request that gives none.
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
