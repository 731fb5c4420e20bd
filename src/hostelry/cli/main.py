"""The `hostelry` command."""

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from typer.main import get_command

from hostelry import __version__
from hostelry.base.errors import HostelryError, UsageError
from hostelry.base.system_failure import failure_text
from hostelry.cli.completion.words import COMPLETE_VARIABLE, joined_words
from hostelry.cli.lazy_group import CommandEntry, LazyGroup, lazy_group
from hostelry.cli.printable import printable_stream

# All arguments after the program's name are the program's, with or without `--`.
PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
# Short helps fit the list of commands within 80 columns. A command is imported when it is used.
COMMANDS = (
    CommandEntry(
        "up", "hostelry.cli.up:up", "Start the platform: gateway, control and object store."
    ),
    CommandEntry("control", "hostelry.cli.control:control", "Run a further control of a platform."),
    CommandEntry("gateway", "hostelry.cli.gateway:gateway", "Serve requests on a further host."),
    CommandEntry(
        "join-token", "hostelry.cli.cluster:join_token", "Print a token for a host that joins."
    ),
    CommandEntry(
        "certificates", "hostelry.cli.cluster:certificates", "Certificates between hosts."
    ),
    CommandEntry("down", "hostelry.cli.down:down", "Stop the platform with every agent and copy."),
    CommandEntry(
        "status", "hostelry.cli.status:status", "Show what runs, and the reason of each failure."
    ),
    CommandEntry(
        "deploy", "hostelry.cli.deploy.command:deploy", "Serve a folder, file, hub id or image."
    ),
    CommandEntry(
        "top", "hostelry.cli.top.command:top", "Show live load, latency, copies, CPU and memory."
    ),
    CommandEntry(
        "ls",
        "hostelry.cli.models.ls:ls",
        "List endpoints, components and adapters with their state.",
    ),
    CommandEntry(
        "chat",
        "hostelry.cli.calls.chat:chat",
        "Talk with a model: answers stream, adapters may be chosen.",
    ),
    CommandEntry(
        "invoke",
        "hostelry.cli.calls.invoke:invoke",
        "Send a file to a model and print the answer's bytes.",
    ),
    CommandEntry(
        "load", "hostelry.cli.load.command:load", "Send load: latency, first token, errors."
    ),
    CommandEntry("scale", "hostelry.cli.models.scale:scale", "Set a model's copies, or bounds."),
    CommandEntry(
        "adapters", "hostelry.cli.models.adapters:adapters", "Add, remove, list adapters."
    ),
    CommandEntry("rm", "hostelry.cli.models.rm:rm", "Remove models with what is theirs alone."),
    CommandEntry(
        "console", "hostelry.cli.console:console", "Print a one-time link to the web console."
    ),
    CommandEntry(
        "apply",
        "hostelry.cli.declared.apply:apply",
        "Make endpoints, scaling and alarms what documents say.",
    ),
    CommandEntry(
        "export",
        "hostelry.cli.declared.export:export",
        "Write what is there as a document for `apply`.",
    ),
    CommandEntry(
        "explain",
        "hostelry.cli.explain:explain",
        "Show where copies are and why, and what is free.",
    ),
    CommandEntry("restart", "hostelry.cli.acts.command:restart", "Replace copies, new ones first."),
    CommandEntry("drain", "hostelry.cli.acts.command:drain", "Empty an instance, then end it."),
    CommandEntry("logs", "hostelry.cli.logs:logs", "Print logs of processes and of model servers."),
    CommandEntry(
        "trace",
        "hostelry.cli.trace:trace",
        "Show each hop of one call, or the slowest and failed calls.",
    ),
    CommandEntry(
        "replay",
        "hostelry.cli.replay:replay",
        "Compare scaling policies on a trace, in simulated time.",
    ),
    CommandEntry(
        "compare",
        "hostelry.cli.compare:compare",
        "Say whether a variant or component is worse than another.",
    ),
    CommandEntry(
        "usage", "hostelry.cli.usage:usage", "Show what serverless endpoints used, by hour."
    ),
    CommandEntry(
        "env", "hostelry.cli.environment:env", "Print the variables that point clients here."
    ),
    CommandEntry(
        "exec", "hostelry.cli.environment:exec_", "Run a program against this hostelry.", PASS_ON
    ),
    CommandEntry(
        "check",
        "hostelry.cli.check.command:check",
        "Run a program or notebook; say what is not served.",
    ),
    CommandEntry(
        "demo",
        "hostelry.cli.demo:demo",
        "Start a platform, serve three adapters of one base, stop.",
    ),
    CommandEntry(
        "demo-model",
        "hostelry.cli.demo_model:demo_model_command",
        "Write the demo's base model as a folder.",
    ),
    CommandEntry(
        "chaos", "hostelry.cli.chaos:chaos", "Break the platform and measure how it recovers."
    ),
    CommandEntry(
        "cells", "hostelry.cli.cells.command:cells", "Platforms behind a router; move endpoints."
    ),
    CommandEntry("graph", "hostelry.cli.graph:graph", "Graphs of models: check a graph.yaml."),
    CommandEntry(
        "jobs", "hostelry.cli.jobs:jobs", "Asynchronous requests, batches and transform jobs."
    ),
    CommandEntry("kernel", "hostelry.cli.kernel:kernel", "Jupyter kernels that use this hostelry."),
    CommandEntry(
        "runtimes",
        "hostelry.cli.runtimes:runtimes",
        "Other engines for the LLM server: install, list, remove.",
    ),
    CommandEntry(
        "scaling", "hostelry.cli.scaling:scaling", "Show what is scaled and why; choose a policy."
    ),
    CommandEntry(
        "dashboards",
        "hostelry.cli.dashboards.command:dashboards",
        "A Grafana dashboard, alert rules and a scrape to use.",
    ),
    CommandEntry(
        "store", "hostelry.cli.store:store", "Move records between SQLite and PostgreSQL."
    ),
    CommandEntry(
        "prune", "hostelry.cli.prune.command:prune", "Show or remove uploads that nothing uses."
    ),
    CommandEntry(
        "backup", "hostelry.cli.backup:backup", "Back a home up while it runs; verify a backup."
    ),
    CommandEntry(
        "upgrade", "hostelry.cli.upgrade:upgrade", "Let this version take over; copies run on."
    ),
    CommandEntry(
        "doctor",
        "hostelry.cli.doctor.command:doctor",
        "Say what this machine can do, and how to get the rest.",
    ),
    CommandEntry(
        "completion",
        "hostelry.cli.completion.script:completion",
        "Print the completion script of a shell.",
    ),
)
app = typer.Typer(
    name="hostelry",
    cls=lazy_group(COMMANDS),
    help="Host many models and LoRA adapters behind Amazon SageMaker's inference APIs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def print_version(wanted: bool) -> None:
    """Print the version and end, if it is wanted."""
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def hostelry(
    shows_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True),
    ] = False,
) -> None:
    """Host many models and LoRA adapters behind Amazon SageMaker's inference APIs."""


@app.command()
def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Print the version.

    Example: hostelry version
    """
    typer.echo(f'{{"version": "{__version__}"}}' if as_json else f"hostelry {__version__}")


def command_tree() -> LazyGroup:
    """Every command, imported: for tests and for what documents them."""
    tree = get_command(app)
    assert isinstance(tree, LazyGroup)
    tree.load_all()
    return tree


def main() -> None:
    """Run the command line; an expected error is one line."""
    if os.environ.get(COMPLETE_VARIABLE) == "complete_bash":
        joined_words(os.environ)
    sys.stdout, sys.stderr = printable_stream(sys.stdout), printable_stream(sys.stderr)
    sys.exit(run(app))


def run(command: Callable[[], object]) -> int:
    """Run `command`; its exit code: 2 for wrong arguments, 1 for another expected error."""
    try:
        command()
    except HostelryError as error:
        typer.echo(f"hostelry: {error}", err=True)
        return 2 if isinstance(error, UsageError) else 1
    except OSError as error:
        typer.echo(f"hostelry: {failure_text(error, os.environ.get('TMPDIR', '/tmp'))}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    main()
