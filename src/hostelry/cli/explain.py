"""`hostelry explain`: why copies are where they are, why others have no place, and why so many."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.cli.explain_text import explanation_document, explanation_lines
from hostelry.cli.explain_values import explained
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, settled
from hostelry.cli.reasons_once import reasons_once
from hostelry.cli.scaling import answer_of
from hostelry.cli.scaling_text import explained_lines
from hostelry.cli.state import control_state
from hostelry.cli.status import DECLARED_NOTE, only_endpoint


def explain(
    component: Annotated[
        str | None,
        typer.Argument(help="Only this inference component.", show_default=False),
    ] = None,
    endpoint: Annotated[str | None, typer.Option(help="Only this endpoint.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what each instance holds and has free, why each copy is there, and why others are not.

    And of what is scaled by itself: what was decided last and why, and what the last act took.

    Exit code 1 when control does not answer, or there is no such endpoint or component.

    Example: hostelry explain

    Example: hostelry explain --endpoint shared chat

    Example: hostelry explain --json
    """
    config, credentials = settled(home_at(home))
    state = control_state(config, credentials)
    if state is None:
        raise TerminalError(
            f"control does not answer at {config.control_url}, and only it knows the placement: "
            "start it with `hostelry up`, or see `hostelry logs control`"
        )
    asked = asked_for(state, endpoint, component)
    found = [explained(it) for it in asked]
    names = [it.endpoint["name"] for it in found]
    targets = [
        it
        for it in answer_of(config, credentials, "/internal/scaling", {})["targets"]
        if it["endpoint"] in names and component in (None, it["component"])
    ]
    if as_json:
        shown = {
            "endpoints": [explanation_document(it, component) for it in found],
            "scaling": targets,
        }
        typer.echo(msgspec.json.format(msgspec.json.encode(shown)).decode())
        return
    now = SystemClock().now()
    shown_once = asked if component is not None else reasons_once(asked)
    lines = [line for it in shown_once for line in explanation_lines(explained(it), now, component)]
    lines += explained_lines(targets)
    typer.echo("\n".join([*lines, DECLARED_NOTE] if lines else ["No endpoints."]))


def asked_for(
    state: dict[str, Any], endpoint: str | None, component: str | None
) -> list[Mapping[str, Any]]:
    """The endpoints to explain: all, the one named, those that have the component.

    Raises TerminalError where there is none of that name.
    """
    if endpoint is not None:
        state = only_endpoint(state, endpoint)
    endpoints: list[Mapping[str, Any]] = state.get("endpoints", [])
    if component is None:
        return endpoints
    having = [it for it in endpoints if component in _names(it)]
    if not having:
        names = ", ".join(sorted(name for it in endpoints for name in _names(it))) or "none"
        raise TerminalError(f"there is no inference component {component}. There are: {names}")
    return having


def _names(endpoint: Mapping[str, Any]) -> list[str]:
    return [it["name"] for it in endpoint.get("components", ())]
