"""`hostelry explain`: reasons of copies' places, of missing copies, and of their number."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.completion import names
from hostelry.cli.control_requests import control_answer
from hostelry.cli.explain_graph import explain_graph
from hostelry.cli.explain_models import model_lines, models_by_copy
from hostelry.cli.explain_text import explanation_document, explanation_lines
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.cli.reasons_once import reasons_once
from hostelry.cli.scaling import scaling_targets
from hostelry.cli.scaling_text import explained_lines
from hostelry.cli.status import DECLARED_NOTE, only_endpoint
from hostelry.processes.fleets import key_shown_to_agents


def explain(
    component: Annotated[
        str | None,
        typer.Argument(
            help="Show only this inference component.",
            show_default=False,
            autocompletion=names.components,
        ),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="Show only this endpoint.", autocompletion=names.endpoints)
    ] = None,
    graph: Annotated[
        str | None,
        typer.Option(
            help="Endpoint whose graph of models is drawn.", autocompletion=names.endpoints
        ),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Also write the drawing of --graph to this file.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what each instance holds and has free, and why each copy is placed or not placed.

    For multi-model copies it also shows the loaded models and the latest evictions. For scalable
    targets it shows the last decision with its reason, and the duration of the last scaling action.
    With --graph it shows the steps of a graph, with their times in the last minute.

    Exit code 1 if control does not answer, or there is no such endpoint or component.

    Example: hostelry explain

    Example: hostelry explain --endpoint shared chat

    Example: hostelry explain --graph ensemble --svg ensemble.svg

    Example: hostelry explain --json
    """
    config, credentials = settled(home_at(home))
    state = control_answer(
        config, credentials, "/internal/placement", knows="where copies are and why"
    )
    if svg is not None and graph is None:
        raise UsageError("--svg goes with --graph")
    if graph is not None:
        (found,) = only_endpoint(state["endpoints"], graph)
        explain_graph(
            found,
            key_shown_to_agents(config, credentials),
            component=component,
            svg=svg,
            as_json=as_json,
        )
        return
    selected = select(state["endpoints"], endpoint, component)
    names = [it["name"] for it in selected]
    targets = [it for it in scaling_targets(home, None, component) if it["endpoint"] in names]
    models = models_by_copy(selected, key_shown_to_agents(config, credentials))
    if as_json:
        shown = [explanation_document(it, component) for it in selected]
        print_json({"endpoints": shown, "scaling": targets, "models": models})
        return
    now = SystemClock().now()
    shown_once = selected if component is not None else reasons_once(selected)
    lines = [line for it in shown_once for line in explanation_lines(it, now, component)]
    lines += [line for name, it in models.items() for line in model_lines(name, it)]
    lines += explained_lines(targets)
    typer.echo("\n".join([*lines, DECLARED_NOTE] if lines else ["No endpoints."]))


def select(
    endpoints: Sequence[Mapping[str, Any]], endpoint: str | None, component: str | None
) -> list[Mapping[str, Any]]:
    """All of `endpoints`, the one of that name, or those that have the component.

    Raises TerminalError where there is none of that name.
    """
    if endpoint is not None:
        endpoints = only_endpoint(endpoints, endpoint)
    if component is None:
        return list(endpoints)
    having = [it for it in endpoints if component in _component_names(it)]
    if not having:
        names = ", ".join(sorted(name for it in endpoints for name in _component_names(it)))
        raise TerminalError(
            f"there is no inference component {component}. There are: {names or 'none'}"
        )
    return having


def _component_names(endpoint: Mapping[str, Any]) -> list[str]:
    return [it["name"] for it in endpoint.get("components", ())]
