"""`hostelry explain --graph`: a graph as text and SVG, asked of the agents of its copies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import typer

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.base.key_guard import INTERNAL_KEY_HEADER
from hostelry.cli.control_requests import TIMEOUT_S
from hostelry.cli.home_option import print_json
from hostelry.graph.drawing import graph_lines, graph_svg
from hostelry.server.home import Credentials

JsonObject = Mapping[str, Any]


def explain_graph(
    endpoint: JsonObject,
    credentials: Credentials,
    *,
    component: str | None,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Print the graph of each copy of an endpoint that is one; raises TerminalError for none."""
    copies = [it for it in endpoint["copies"] if it["phase"] == "ready" and _is_of(it, component)]
    agents = {it["id"]: it["agent_address"] for it in endpoint["instances"]}
    found = {it["id"]: graph_of(it["id"], agents[it["instance"]], credentials) for it in copies}
    graphs = {name: it for name, it in found.items() if isinstance(it, Mapping)}
    if not graphs:
        reasons = "; ".join(str(it) for it in found.values()) or "no copy of it is ready"
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


def graph_of(copy_id: str, agent: str, credentials: Credentials) -> dict[str, Any] | str:
    """The graph of a copy; a text where it has none, or its agent is silent."""
    try:
        answer = httpx.get(
            f"{agent}/graph/{copy_id}",
            headers={INTERNAL_KEY_HEADER: credentials.internal_key},
            timeout=TIMEOUT_S,
            trust_env=False,
            verify=False,  # plain HTTP on loopback
        )
        if answer.status_code == 200:
            return decode(answer.content, dict[str, Any])
    except (httpx.HTTPError, msgspec.DecodeError) as error:
        return f"the agent of {copy_id} does not answer: {error}"
    return f"{copy_id}: {answer.text[:200]}"


def _is_of(copy: JsonObject, component: str | None) -> bool:
    return component is None or copy["component"] == component
