"""Model, adapter and caller of a request, from its path, query and headers.

The first of these places that names a model or version decides, as in DJL Serving. A request that
has no such name is for the only model of this server:

    path {model}, {version} -> query model_name, model_version -> headers of these names

DJL Serving's front end also lets a client poll for an answer. Such requests are refused:

    x-synchronous: false   asks for a token instead of the answer
    x-starting-token       asks for the next items of such an answer
"""

from msgspec.structs import replace
from starlette.requests import Request

from hostelry.containers.lmi.http.server import LmiServer, LoadedModel
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface, bad_request
from hostelry.containers.lmi.request.adapter_choice import AdapterCaller
from hostelry.containers.lmi.request.context import ParseContext
from hostelry.containers.lmi.request.fields import show
from hostelry.containers.lmi.settings.config import ImageKind, LmiConfig

ADAPTER_HEADER = "x-amzn-sagemaker-adapter-identifier"
ALIAS_HEADER = "x-amzn-sagemaker-adapter-alias"
API_HEADER = "x-amzn-sagemaker-forwarded-api"
MODEL_HEADER = "x-hostelry-model"
STRICT_HEADER = "x-hostelry-strict-fields"
STREAMING_API = "InvokeEndpointWithResponseStream"
SYNCHRONOUS = "x-synchronous"
TOKEN = "x-starting-token"


def check_asked_model(config: LmiConfig, request: Request) -> None:
    """Raise Refusal (404) for a model or a version of it that is not served here."""
    name, version = get_asked_model(request, "model"), get_asked_model(request, "version")
    if name and name not in (*config.served, config.model_dir.name):
        raise Refusal(
            Cause.NOT_FOUND,
            f"Model not found: {name[:200]}. This server has {', '.join(config.served)}",
        )
    if version and version != config.revision:
        raise Refusal(
            Cause.NOT_FOUND,
            f"Model or workflow not found: version {show(version)}; this server has "
            + (f"version {config.revision}" if config.revision else "no versions: leave it out"),
        )


def get_asked_model(request: Request, kind: str) -> str | None:
    """The name or version that the request gives."""
    given = request.path_params.get(kind)
    if given:
        return str(given)
    name = f"model_{'name' if kind == 'model' else kind}"
    return request.query_params.get(name) or request.headers.get(name)


def check_synchronous(request: Request) -> None:
    """Raise Refusal for a request whose answer would be polled for."""
    synchronous = request.headers.get(SYNCHRONOUS, "true")
    if synchronous.lower() == "false":
        raise bad_request(
            f"{SYNCHRONOUS} is {show(synchronous)}; each answer is sent when it is there: leave "
            "the header out, and set stream for tokens as they come"
        )
    if TOKEN in request.headers:
        raise bad_request(
            f"{TOKEN} is given; this server keeps no answers to poll for: leave the header out"
        )


def parse_context(server: LmiServer, request: Request, model: LoadedModel) -> ParseContext:
    """The values that go with the body of `request`."""
    config = server.config
    return ParseContext(
        dialect=config.dialect,
        caller=replace(get_caller(request), any_model=reads_no_model(config, request.url.path)),
        registered=model.registry.records.keys(),
        served=config.served,
        model_name=config.model_name,
        tgi_compat=config.tgi_compat,
        output_formatter=config.output_formatter,
        chat=model.chat,
        fresh_seed=server.seeds.randrange(2**31),
        defaults=model.defaults,
        conventions=model.conventions,
        template_variables=config.tools.template_variables,
        max_logprobs=config.max_logprobs,
        trust_chat_template=config.trust_request_chat_template,
        strict_fields=config.strict_fields
        or request.headers.get(STRICT_HEADER, "").lower() == "true",
        images=model.images,
    )


def reads_no_model(config: LmiConfig, path: str) -> bool:
    """True if a body's `model` that does not name an adapter is the base.

    This is so with TGI, and with LMI's rolling batch on its own routes.
    """
    is_rolling = config.dialect is Surface.LEGACY and not path.startswith("/v1/")
    return config.image is ImageKind.TGI or is_rolling


def get_caller(request: Request) -> AdapterCaller:
    """The values of headers and query that go with the body."""
    return AdapterCaller(
        adapter=request.headers.get(ADAPTER_HEADER),
        alias=request.headers.get(ALIAS_HEADER),
        query_adapter=request.query_params.get("adapter"),
        model=request.headers.get(MODEL_HEADER),
        streaming_api=request.headers.get(API_HEADER) == STREAMING_API,
    )
