"""`hostelry graph check`: check a graph.yaml before its archive is uploaded."""

from pathlib import Path
from typing import Annotated

import typer

from hostelry.base.errors import TerminalError
from hostelry.cli.home_option import JsonOption, print_json
from hostelry.graph.check import build_plan
from hostelry.graph.document import FILE
from hostelry.graph.drawing import describe_plan, graph_lines
from hostelry.graph.steps import GraphDocumentError

graph = typer.Typer(help="Check graphs of models (graph.yaml).", no_args_is_help=True)


@graph.callback()
def _group() -> None:
    """Graphs of models."""


@graph.command()
def check(
    place: Annotated[Path, typer.Argument(help="File graph.yaml, or the folder that contains it.")],
    as_json: JsonOption = False,
) -> None:
    """Check a graph as its server does: names, types, cycles, and the files of its functions.

    The targets are not checked. A missing target shows in the first call. Exit code 1 if the graph
    is invalid.

    Example: hostelry graph check examples/graph/ensemble
    """
    file = place / FILE if place.is_dir() else place
    try:
        plan = build_plan(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TerminalError(f"{file} cannot be read: {error}") from None
    except GraphDocumentError as error:
        lines = [f"{file} has {len(error.faults)} faults:", *(it.text for it in error.faults)]
        raise TerminalError("\n  ".join(lines)) from None
    code = file.parent / "code"
    for function in plan.functions:
        module = code.joinpath(*function.partition(":")[0].split("."))
        if not module.with_suffix(".py").is_file() and not (module / "__init__.py").is_file():
            raise TerminalError(f"{function}: there is no {module}.py")
    if as_json:
        print_json({"file": str(file), **describe_plan(plan)})
        return
    typer.echo(f"{file} is a graph of {len(plan.steps)} steps")
    typer.echo("\n".join(graph_lines(describe_plan(plan))[1:]))
