"""The `hostelry` command."""

import sys
from collections.abc import Callable

import typer

from hostelry import __version__
from hostelry.base.errors import HostelryError
from hostelry.cli.calls.chat import chat
from hostelry.cli.calls.invoke import invoke
from hostelry.cli.chaos import chaos
from hostelry.cli.check.command import check
from hostelry.cli.compare import compare
from hostelry.cli.demo import demo
from hostelry.cli.demo_model import demo_model_command
from hostelry.cli.deploy.command import deploy
from hostelry.cli.environment import env, exec_
from hostelry.cli.explain import explain
from hostelry.cli.graph import graph
from hostelry.cli.jobs import jobs
from hostelry.cli.kernel import kernel
from hostelry.cli.logs import logs
from hostelry.cli.models.ls import ls
from hostelry.cli.replay import replay
from hostelry.cli.runtimes import runtimes
from hostelry.cli.scaling import scaling
from hostelry.cli.status import status
from hostelry.cli.trace import trace
from hostelry.cli.up import down, up
from hostelry.cli.usage import usage

app = typer.Typer(
    name="hostelry",
    help="Host many models and LoRA adapters behind Amazon SageMaker's inference APIs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
# All arguments after the program's name are the program's, with or without `--`.
PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
# Short helps fit the list of commands within 80 columns.
app.command(short_help="Start the platform: gateway, control and object store.")(up)
app.command(short_help="Stop the platform with every agent and copy.")(down)
app.command(short_help="Deploy a model from a folder, file, S3, the hub or an image.")(deploy)
app.command(short_help="Show what runs, and the reason of each failure.")(status)
app.command(short_help="List endpoints, components and adapters with their state.")(ls)
app.command(short_help="Talk with a model: answers stream, adapters may be chosen.")(chat)
app.command(short_help="Send a file to a model and print the answer's bytes.")(invoke)
app.command(short_help="Show where copies are and why, and what is free.")(explain)
app.command(short_help="Print logs of processes and of model servers.")(logs)
app.command(short_help="Show each hop of one call, or the slowest and failed calls.")(trace)
app.command(short_help="Compare scaling policies on a trace, in simulated time.")(replay)
app.command(short_help="Say whether a variant or component is worse than another.")(compare)
app.command(short_help="Show what serverless endpoints used, by hour.")(usage)
app.command(short_help="Print the variables that point clients here.")(env)
app.command("exec", short_help="Run a program against this hostelry.", context_settings=PASS_ON)(
    exec_
)
app.command(short_help="Run a program or notebook; say what is not served.")(check)
app.command(short_help="Start a platform, serve three adapters of one base, stop.")(demo)
app.command("demo-model", short_help="Write the demo's base model as a folder.")(demo_model_command)
app.add_typer(chaos, name="chaos", short_help="Break the platform and measure how it recovers.")
app.add_typer(graph, name="graph", short_help="Graphs of models: check a graph.yaml.")
app.add_typer(jobs, name="jobs", short_help="Asynchronous requests, batches and transform jobs.")
app.add_typer(kernel, name="kernel", short_help="Jupyter kernels that use this hostelry.")
app.add_typer(
    runtimes, name="runtimes", short_help="Other engines for the LLM server: install, list, remove."
)
app.add_typer(scaling, name="scaling", short_help="Show what is scaled and why; choose a policy.")


@app.command()
def version() -> None:
    """Print the version.

    Example: hostelry version
    """
    typer.echo(f"hostelry {__version__}")


def main() -> None:
    """Run the command line; an expected error is one line and exit code 1."""
    sys.exit(run(app))


def run(command: Callable[[], object]) -> int:
    """Run `command`; the exit code, 1 after an expected error, which is printed."""
    try:
        command()
    except HostelryError as error:
        typer.echo(f"hostelry: {error}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    main()
