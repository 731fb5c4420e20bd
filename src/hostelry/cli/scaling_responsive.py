"""`hostelry scaling responsive`: choose the responsive policy for an endpoint or a component.

It sets or deletes a tag, as any AWS client can.
"""

from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.completion import names
from hostelry.cli.control_requests import document, send
from hostelry.cli.home_option import HomeOption, home_at, settled
from hostelry.domain.scope import Scope
from hostelry.home.home import Credentials, UpConfig
from hostelry.scaling.decide.responsive.opt_in import OFF, RESPONSIVE_TAG, tag_of_options
from hostelry.scaling.decide.responsive.options import ResponsiveOptions


def responsive(
    endpoint: Annotated[
        str, typer.Argument(help="Name of the endpoint.", autocompletion=names.endpoints)
    ],
    component: Annotated[
        str | None,
        typer.Option(
            help=("Change only this inference component. Default: all components of the endpoint."),
            autocompletion=names.components,
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Desired concurrency per copy (per instance for a model endpoint)."),
    ] = None,
    false_alarms_per_hour: Annotated[
        float,
        typer.Option(
            help=("Scaling actions per hour that unchanged load may cause, from 0.001 to 20.")
        ),
    ] = 1.0,
    scale_in_after: Annotated[
        float | None,
        typer.Option(
            help=(
                "Remove a copy after this number of seconds of low load, if no "
                "target-tracking policy scales in. Default: only AWS's policies scale in."
            )
        ),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Turn the responsive policy off.")] = False,
    home: HomeOption = None,
) -> None:
    """Scale out within seconds when the load rises, in addition to other policies.

    The bounds are those of the registered scalable target. Exit code 1 if there is no such endpoint
    or component, or a value is invalid.

    Example: hostelry scaling responsive chat --target 5

    Example: hostelry scaling responsive shared --component chat-base --off
    """
    value = tag_value(target, false_alarms_per_hour, scale_in_after, off=off)
    config, credentials = settled(home_at(home))
    scope = Scope(credentials.account_id, credentials.region)
    kind, name = ("endpoint", endpoint) if component is None else ("inference-component", component)
    arn = scope.arn(kind, name)
    if component is not None:
        check_on(config, credentials, endpoint, component)
    if value == OFF and component is None:
        call(config, credentials, "DeleteTags", {"ResourceArn": arn, "TagKeys": [RESPONSIVE_TAG]})
    else:
        tags = [{"Key": RESPONSIVE_TAG, "Value": value}]
        call(config, credentials, "AddTags", {"ResourceArn": arn, "Tags": tags})
    typer.echo(outcome(f"{kind} {name}", value))


def tag_value(
    target: float | None, false_alarms_per_hour: float, scale_in_after_s: float | None, *, off: bool
) -> str:
    """The tag's value; raises TerminalError for options that contradict or are invalid."""
    if off:
        if target is not None:
            raise UsageError("--off turns the policy off, and --target turns it on: give one")
        return OFF
    if target is None:
        raise UsageError("--target is missing: the desired concurrency per copy, for example 5")
    try:
        options = ResponsiveOptions(
            target=target,
            false_alarms_per_hour=false_alarms_per_hour,
            scale_in_after_s=scale_in_after_s,
        )
    except ValueError as error:
        raise TerminalError(str(error)) from None
    return tag_of_options(options)


def outcome(what: str, value: str) -> str:
    """The outcome of the command in a sentence."""
    if value == OFF:
        return f"{what}: the responsive policy is off"
    return (
        f"{what}: responsive, {RESPONSIVE_TAG}={value}; "
        "`hostelry scaling status` shows its scalable target and its decisions"
    )


def check_on(config: UpConfig, credentials: Credentials, endpoint: str, component: str) -> None:
    """Raise TerminalError unless the component exists on that endpoint."""
    found = call(
        config, credentials, "DescribeInferenceComponent", {"InferenceComponentName": component}
    )
    if found["EndpointName"] != endpoint:
        raise TerminalError(
            f"inference component {component} is on endpoint {found['EndpointName']}, "
            f"not on {endpoint}"
        )


def call(
    config: UpConfig, credentials: Credentials, operation: str, params: dict[str, Any]
) -> dict[str, Any]:
    """The answer of one operation of SageMaker's API; raises TerminalError with its error."""
    response = send(
        config,
        credentials,
        "POST",
        "/",
        headers={
            "X-Hostelry-Account": credentials.account_id,
            "X-Hostelry-Region": credentials.region,
            "X-Hostelry-Service": "sagemaker",
            "X-Amz-Target": f"SageMaker.{operation}",
            "Content-Type": "application/x-amz-json-1.1",
        },
        content=msgspec.json.encode(params),
    )
    found = document(response)
    if response.status_code != 200:
        raise TerminalError(str(found.get("message") or found.get("Message") or response.text))
    return found
