"""The members of calls as records show them: without secrets, and shortened.

| a member | shown as |
| --- | --- |
| that botocore's model marks as sensitive, or a name in `SECRETS` | `HIDDEN` |
| a name in `SECRET_MAPS`, for example Environment | its keys, each with `HIDDEN` |
| bytes | their number |
| a longer text, list or map | its beginning, and the number of characters or entries |

Names begin with a lower-case letter, as CloudTrail writes them.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import msgspec
from botocore.model import ListShape, MapShape, Shape, StructureShape

from hostelry.aws.models import operation_model

HIDDEN = "HIDDEN_DUE_TO_SECURITY_REASONS"
SECRETS = frozenset(
    {
        "SecretString", "SecretBinary", "Plaintext", "SecretAccessKey", "SessionToken",
        "ServiceCredentialSecret", "ServicePassword",
        "RotationToken", "Token", "TokenCode", "WebIdentityToken", "SAMLAssertion", "Password",
        "OldPassword", "NewPassword", "MessageBody", "MessageAttributes",
        "MessageSystemAttributes", "Message", "message", "Subject", "Input", "InputTemplate",
        "Detail", "DashboardBody",
    }
)  # fmt: skip
SECRET_MAPS = frozenset({"Environment", "HeaderParameters", "QueryStringParameters"})
MAX_CHARACTERS = 1024
MAX_ENTRIES = 50
MAX_DEPTH = 12
MAX_DOCUMENT_CHARACTERS = 20_480  # of policies


class MemberPlan(msgspec.Struct):
    """How a shape is shown. `members` has the shown name and the plan of each member."""

    is_hidden: bool = False
    hides_values: bool = False
    members: dict[str, tuple[str, "MemberPlan"]] | None = None
    inner: "MemberPlan | None" = None  # of a list's or map's entries
    max_characters: int = MAX_CHARACTERS


PLAIN = MemberPlan()


def show_params(service: str, operation: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """The parameters of a call as a record shows them. None without parameters."""
    return _show_all(_get_plan(service, operation, is_input=True), params)


def show_result(service: str, operation: str, result: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result of a call as a record shows it. None for an empty result."""
    return _show_all(_get_plan(service, operation, is_input=False), result)


def _show_all(plan: MemberPlan, members: Mapping[str, Any]) -> dict[str, Any] | None:
    shown = _show(plan, members, 0)
    return shown if isinstance(shown, dict) and shown else None


@lru_cache(2048)
def _get_plan(service: str, operation: str, *, is_input: bool) -> MemberPlan:
    model = operation_model(service, operation)
    shape = model.input_shape if is_input else model.output_shape
    return PLAIN if shape is None else _build_plan(shape, {})


def _build_plan(shape: Shape, known: dict[str, MemberPlan]) -> MemberPlan:
    """The plan of a shape. `known` has the plans of the shapes around it, which may recur."""
    if shape.name in known:
        return known[shape.name]
    plan = known[shape.name] = MemberPlan(is_hidden=bool(shape.metadata.get("sensitive")))
    if isinstance(shape, StructureShape):
        plan.members = {
            name: (name[:1].lower() + name[1:], _plan_member(name, member, known))
            for name, member in shape.members.items()
        }
    elif isinstance(shape, ListShape):
        plan.inner = _build_plan(shape.member, known)
    elif isinstance(shape, MapShape):
        plan.inner = _build_plan(shape.value, known)
    return plan


def _plan_member(name: str, shape: Shape, known: dict[str, MemberPlan]) -> MemberPlan:
    if name in SECRETS:
        return MemberPlan(is_hidden=True)
    if name in SECRET_MAPS and isinstance(shape, MapShape):
        return MemberPlan(hides_values=True)
    if name.endswith(("PolicyDocument", "Policy")):
        return MemberPlan(max_characters=MAX_DOCUMENT_CHARACTERS)
    return _build_plan(shape, known)


def _show(plan: MemberPlan, value: Any, depth: int) -> Any:
    if plan.is_hidden:
        return HIDDEN
    if isinstance(value, str):
        return _show_text(value, plan.max_characters)
    if value is None or isinstance(value, int | float):
        return value
    if depth > MAX_DEPTH:
        return "..."
    if isinstance(value, Mapping):
        return dict(_show_members(plan, value, depth))
    if isinstance(value, list | tuple):
        inner = plan.inner or PLAIN
        shown = [_show(inner, it, depth + 1) for it in value[:MAX_ENTRIES]]
        return shown if len(value) <= MAX_ENTRIES else [*shown, f"... {len(value)} entries"]
    if isinstance(value, bytes | bytearray):
        return f"{len(value)} bytes"
    return str(value)[:MAX_CHARACTERS]


def _show_members(
    plan: MemberPlan, value: Mapping[str, Any], depth: int
) -> Iterator[tuple[str, Any]]:
    members = plan.members
    for name, member in islice(value.items(), MAX_ENTRIES):
        if members is not None:
            if member is not None and name in members:
                shown_name, inner = members[name]
                yield shown_name, _show(inner, member, depth + 1)
        elif plan.hides_values:
            yield name[:MAX_CHARACTERS], HIDDEN
        else:
            yield name[:MAX_CHARACTERS], _show(plan.inner or PLAIN, member, depth + 1)
    if len(value) > MAX_ENTRIES:
        yield "...", f"{len(value)} entries"


def _show_text(text: str, max_characters: int) -> str:
    if "@" in text and "://" in text:
        text = hide_login(text)
    if len(text) <= max_characters:
        return text
    return f"{text[:max_characters]}... {len(text)} characters"


def hide_login(url: str) -> str:
    """A URL without its user and password. Other texts are unchanged."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    login, at, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{HIDDEN}@{host}").geturl() if at and login else url
