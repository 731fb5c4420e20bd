"""Chooses a request's adapter.

The first row that applies decides. LMI's schema:

    header X-Amzn-SageMaker-Adapter-Identifier -> one name for all inputs
    query `adapter`                            -> one name for all inputs
    body `adapters` (or `adapter`)             -> one name, or one for each input ("" and []: base)
    parameters' `adapter_id`                   -> one name for all inputs
    body `model`: absent or the base's name    -> the base
    body `model`: a registered adapter         -> that adapter
    body `model`: any other name               -> refused

OpenAI's schemas, which also refuse a body that contradicts the adapter header:

    header, query, body `adapters`             -> as above
    header X-Hostelry-Model                    -> the base
    body `model`                               -> as above

A TGI image, and LMI's rolling batch on /invocations, take any other name in `model` for the base,
because clients write "tgi" or the endpoint's name.
"""

from collections.abc import Collection

import msgspec

from hostelry.containers.lmi.refusal import Cause, Refusal, bad_request
from hostelry.containers.lmi.request.fields import SHOWN_CHARACTERS, BodyFields, show

MODEL_PATH = "/opt/ml/model"  # the base model's name in requests for vLLM's images


class AdapterCaller(msgspec.Struct, frozen=True, kw_only=True):
    """The headers and the query that decide about a request's body. None if absent.

    `model` is the gateway's own header. With it, the body's `model` is not read. `streaming_api` is
    set for calls of the platform's streaming operation. With `any_model` a `model` that is not an
    adapter means the base.
    """

    adapter: str | None = None
    alias: str | None = None
    query_adapter: str | None = None
    model: str | None = None
    streaming_api: bool = False
    any_model: bool = False


def unknown_adapter(name: str) -> Refusal:
    """The refusal of a name that is not registered."""
    message = f"Adapter {name[:SHOWN_CHARACTERS]} is not registered"
    return Refusal(Cause.UNKNOWN_ADAPTER, message, "adapters")


def choose_adapters(
    caller: AdapterCaller, body: BodyFields, count: int, registered: Collection[str]
) -> tuple[str | None, ...]:
    """The adapter of each of `count` prompts, None for the base model (see the table above).

    Raises Refusal for a name that is not registered, and for a list whose length differs from the
    number of prompts.
    """
    if caller.adapter is not None:
        names = (caller.adapter,) * count
    elif caller.query_adapter is not None:
        names = (caller.query_adapter,) * count
    else:
        names = body_adapters(body, count)
    for name in names:
        if name and name not in registered:
            raise unknown_adapter((caller.alias if name == caller.adapter else None) or name)
    return tuple(name or None for name in names)


def choose_for_inputs(
    caller: AdapterCaller,
    body: BodyFields,
    count: int,
    served: Collection[str],
    registered: Collection[str],
) -> tuple[str | None, ...]:
    """The adapters of a request in LMI's schema (see the table above). Raises Refusal."""
    named = body.members("parameters").text("adapter_id")
    if caller.adapter is not None or caller.query_adapter is not None or names_adapter(body):
        return choose_adapters(caller, body, count, registered)
    if named is not None:
        if named and named not in registered:
            raise unknown_adapter(named)
        return (named or None,) * count
    return (named_model(caller, body, served, registered),) * count


def body_adapters(body: BodyFields, count: int) -> tuple[str, ...]:
    """The adapter of each prompt by the body's `adapters` (or `adapter`). Empty for the base."""
    value = body.raw("adapters") if "adapters" in body else body.raw("adapter")
    if value is None or value == []:
        return ("",) * count
    if isinstance(value, str):
        return (value,) * count
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise bad_request(
            f"adapters is {show(value)}; it must be a name or a list of one name per input",
            "adapters",
        )
    if len(value) != count:
        raise bad_request(
            "Number of adapters is not equal to the number of inputs "
            f"({len(value)} adapters, {count} inputs)",
            "adapters",
        )
    return tuple(value)


def check_same(caller: AdapterCaller, body: BodyFields) -> None:
    """Raise Refusal for a body that names another adapter than the header."""
    named = body_adapters(body, 1)[0] if names_adapter(body) else caller.adapter
    if named not in (caller.adapter, caller.alias):
        raise bad_request(
            f"adapters is {show(named)}, but the request was sent to adapter "
            f"{caller.alias or caller.adapter or 'none'}; leave the field out",
            "adapters",
        )


def names_adapter(body: BodyFields) -> bool:
    """True if the body names an adapter."""
    return "adapters" in body or "adapter" in body


def choose_by_model(
    caller: AdapterCaller, body: BodyFields, served: Collection[str], registered: Collection[str]
) -> str | None:
    """The adapter of an OpenAI request, None for the base model (see the table above).

    `served` are the names of the base model. Raises Refusal.
    """
    if caller.adapter is not None:
        check_same(caller, body)
    if caller.adapter is not None or caller.query_adapter is not None or names_adapter(body):
        return choose_adapters(caller, body, 1, registered)[0]
    return named_model(caller, body, served, registered)


def named_model(
    caller: AdapterCaller, body: BodyFields, served: Collection[str], registered: Collection[str]
) -> str | None:
    """The adapter that the body's `model` names, None for the base model. Raises Refusal."""
    model = body.text("model")
    if caller.model is not None or not model or model in served or model == MODEL_PATH:
        return None
    if model in registered:
        return model
    if caller.any_model:
        return None
    raise Refusal(
        Cause.UNKNOWN_MODEL,
        f"The model {show(model)} does not exist. The base model is {', '.join(sorted(served))} "
        "(option.served_model_name), and no adapter is registered under this name",
        "model",
    )
