"""The model that a request of DJL's routes names.

The first that is there decides, as in DJL Serving; none of them names the one model of this server:

    path {model}, {version} -> query model_name, model_version -> headers of these names
"""

from starlette.requests import Request

from hostelry.containers.lmi.refusal import Cause, Refusal
from hostelry.containers.lmi.request.fields import shown
from hostelry.containers.lmi.settings.config import LmiConfig


def check_asked_model(config: LmiConfig, request: Request) -> None:
    """Raise Refusal (404) for a model or a version of it that is not served here."""
    name, version = asked(request, "model"), asked(request, "version")
    if name and name not in (*config.served, config.model_dir.name):
        raise Refusal(
            Cause.NOT_FOUND,
            f"Model not found: {name[:200]}. This server has {', '.join(config.served)}",
        )
    if version and version != config.revision:
        raise Refusal(
            Cause.NOT_FOUND,
            f"Model or workflow not found: version {shown(version)}; this server has "
            + (f"version {config.revision}" if config.revision else "no versions: leave it out"),
        )


def asked(request: Request, kind: str) -> str | None:
    """The name or version that the request gives."""
    given = request.path_params.get(kind)
    if given:
        return str(given)
    name = f"model_{'name' if kind == 'model' else kind}"
    return request.query_params.get(name) or request.headers.get(name)
