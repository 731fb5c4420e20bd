"""Arguments of the parsers that do not come from the body, such as the tenant and the deadline."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from hostelry.containers.lmi.refusal import Surface, bad_request
from hostelry.containers.lmi.request.adapter_choice import AdapterCaller
from hostelry.containers.lmi.request.chat_fields import ChatFields
from hostelry.containers.lmi.request.fields import show
from hostelry.containers.lmi.request.images import NO_IMAGES, ImageLimits
from hostelry.containers.lmi.request.sampling import MAX_LOGPROBS, NEUTRAL, SamplingDefaults
from hostelry.containers.lmi.tools.families import Conventions

PRINCIPAL_HEADER = "x-hostelry-principal"
TENANT_HEADER = "x-hostelry-tenant"
DEADLINE_HEADER = "x-hostelry-first-token-deadline-s"
MAX_TENANT_CHARACTERS = 256  # also of the names in option.tenants
MAX_DEADLINE_S = 86_400.0


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """A request's tenant (None: the adapter's name) and deadline (None: no deadline).

    `principal` is the caller as the gateway verified it, "" for the account itself.
    """

    tenant: str | None = None
    first_token_deadline_s: float | None = None
    principal: str = ""

    def salt(self, given: str) -> str:
        """The salt of cached prefixes. Callers never share prefixes, even if they give equal salts.

        A caller's own salt has no slash, so that it cannot stand for another principal.
        """
        return f"{self.principal}/{given}" if self.principal else given


def parse_terms(headers: Mapping[str, str], default_deadline_s: float | None) -> Terms:
    """The terms by the request's headers. Raises Refusal for invalid values."""
    tenant = headers.get(TENANT_HEADER)
    if tenant is not None and not is_tenant_name(tenant):
        raise bad_request(
            f"the header X-Hostelry-Tenant is {show(tenant)}; it must be 1 to "
            f"{MAX_TENANT_CHARACTERS} printable characters"
        )
    text = headers.get(DEADLINE_HEADER)
    deadline_s = default_deadline_s if text is None else parse_deadline(text)
    principal = headers.get(PRINCIPAL_HEADER, "")
    return Terms(tenant=tenant, first_token_deadline_s=deadline_s, principal=principal)


def is_tenant_name(name: str) -> bool:
    """True if `name` is valid for a tenant."""
    return 0 < len(name) <= MAX_TENANT_CHARACTERS and name.isprintable()


def parse_deadline(text: str) -> float:
    """Seconds. Raises Refusal."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= MAX_DEADLINE_S:
        raise bad_request(
            f"the header X-Hostelry-First-Token-Deadline-S is {show(text)}; it must be a number "
            f"of seconds greater than 0 and at most {MAX_DEADLINE_S:g}"
        )
    return value


class ChatRenderer(Protocol):
    """Renders messages as the prompt of a chat model."""

    def render(self, messages: Sequence[Mapping[str, Any]], fields: ChatFields) -> str:
        """The prompt's text, special tokens included. Raises Refusal for messages it rejects."""
        ...


class ParseContext(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration, caller and registered adapters as plain values.

    `served` are the names of the base model, `model_name` is its name in responses. A request
    without a seed gets `fresh_seed`, and `defaults` for other missing sampling fields. With
    `strict_fields` a field outside the table of fields is refused. With `trust_chat_template` a
    request may have its own template. `template_variables` are for chats without variables.
    `conventions` say how the model writes calls and reasoning, `images` which images it reads.
    """

    dialect: Surface
    caller: AdapterCaller = msgspec.field(default_factory=AdapterCaller)
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
    template_variables: Mapping[str, Any] = msgspec.field(default_factory=dict)
    conventions: Conventions = msgspec.field(default_factory=Conventions)
    images: ImageLimits = NO_IMAGES
