"""`hostelry permissions`: which statement of a policy decides on an action."""

from typing import Annotated, Any

import typer

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.printable import printable
from hostelry.cli.control_requests import document, send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json

permissions = typer.Typer(
    help="Decisions of policies on actions of users and roles.", no_args_is_help=True
)
WORDS = {"allowed": "Allowed", "explicitDeny": "Denied", "implicitDeny": "Denied"}


@permissions.callback()
def _permissions() -> None:
    """Permissions."""


@permissions.command("explain")
def explain(
    principal: Annotated[str, typer.Argument(help="user/NAME, role/NAME, root, or an ARN.")],
    action: Annotated[str, typer.Argument(help="For example sagemaker:InvokeEndpoint.")],
    resource: Annotated[str, typer.Argument(help="ARN of the resource, or *.")] = "*",
    account: Annotated[
        str, typer.Option(help="Id of the account. Default: the platform's first account.")
    ] = "",
    context: Annotated[
        list[str] | None,
        typer.Option(help="Condition key and value of the request, KEY=VALUE. May be repeated."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show whether a principal may do something, and which statement of a policy decides.

    Policies of resources are not read. Exit code 1 if the action is denied.

    Example: hostelry permissions explain user/ann sagemaker:InvokeEndpoint
    """
    _check(action, context or [])
    if principal.startswith("arn:") and not account:
        account = principal.split(":", 5)[4]
    query: list[tuple[str, str]] = [
        ("account", account),
        ("principal", principal),
        ("action", action),
        ("resource", resource),
        *(("context", it) for it in context or ()),
    ]
    config, credentials = load_home(home_at(home))
    response = send(config, credentials, "GET", "/internal/permissions", params=query)
    found = document(response)
    if response.status_code != 200:
        raise TerminalError(printable(str(found.get("error", response.text))))
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(_describe(found)))
    if found["decision"] != "allowed":
        raise typer.Exit(1)


def _check(action: str, context: list[str]) -> None:
    service, _, name = action.partition(":")
    if not service or not name or "*" in action:
        raise UsageError(f"{action} is not an action: give SERVICE:ACTION without wildcards.")
    for pair in context:
        if "=" not in pair:
            raise UsageError(f"--context {pair} is not KEY=VALUE.")


def _describe(found: dict[str, Any]) -> list[str]:
    """The lines about a decision."""
    lines = [
        f"{WORDS[found['decision']]}: {found['action']} on {found['resource']}",
        f"  for     {found['principal']}",
        f"  reason  {found['reason']}",
    ]
    statement = found["statement"]
    if statement is not None:
        sid = f" ({statement['sid']})" if statement["sid"] else ""
        place = f"statement {statement['index'] + 1}{sid} of {statement['policy_id']}"
        lines.append(f"  by      {place}")
    policies = ", ".join(found["policies"]) or "none"
    lines.append(f"  has     policies: {policies}")
    if found["has_boundary"]:
        lines.append("          and a permissions boundary")
    if found["missing_keys"]:
        lines.append(f"  absent  condition keys: {', '.join(found['missing_keys'])}")
    return [printable(it) for it in lines]
