"""`hostelry explain --graph`: a graph as text and SVG, asked of the agents of its copies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from hostelry.base.errors import TerminalError
from hostelry.cli.agent_request import ask_agent
from hostelry.cli.home_option import print_json
from hostelry.graph.drawing import graph_lines, graph_svg

JsonObject = Mapping[str, Any]


def explain_graph(
    endpoint: JsonObject,
    key: str,
    *,
    component: str | None,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Print the graph of each copy of an endpoint that is one; raises TerminalError for none."""
    copies = [it for it in endpoint["copies"] if it["phase"] == "ready" and _is_of(it, component)]
    agents = {it["id"]: it["agent_address"] for it in endpoint["instances"]}
    found = {
        copy["id"]: ask_agent(agents[copy["instance"]], f"/graph/{copy['id']}", key)
        for copy in copies
    }
    graphs = {name: it for name, it in found.items() if isinstance(it, Mapping)}
    if not graphs:
        reasons = (
            "; ".join(f"{copy}: {it}" for copy, it in found.items()) or "no copy of it is ready"
        )
        raise TerminalError(f"{endpoint['name']} has no copy that is a graph: {reasons}")
    if svg is not None:
        drawn = graph_svg(next(iter(graphs.values())), f"endpoint {endpoint['name']}")
        try:
            svg.write_text(drawn, encoding="utf-8")
        except OSError as error:
            raise TerminalError(f"{svg} cannot be written: {error}") from None
    if as_json:
        print_json({"endpoint": endpoint["name"], "copies": graphs})
        return
    for name, graph in graphs.items():
        typer.echo(f"endpoint {endpoint['name']}, copy {name}, the last minute")
        typer.echo("\n".join(f"  {line}" for line in graph_lines(graph)))
        for step, why in graph.get("missing", {}).items():
            typer.echo(f"  warning: step {step}: {why}")


def _is_of(copy: JsonObject, component: str | None) -> bool:
    return component is None or copy["component"] == component
