"""The `hostelry` command."""

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Annotated

import typer
from typer.main import get_command

from hostelry import __version__
from hostelry.base.errors import HostelryError, UsageError
from hostelry.base.printable import printable_stream
from hostelry.base.system import failure_text
from hostelry.cli.lazy_group import CommandEntry, LazyGroup, lazy_group

# All arguments after the program's name belong to the program, with or without `--`.
PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
# Short helps fit the list of commands into 80 columns. A command is imported when it is used.
COMMANDS = tuple(
    CommandEntry(name, f"hostelry.cli.{place}", text, PASS_ON if name == "exec" else {})
    for name, place, text in (
        ("up", "up:up", "Start the platform: gateway, control and object store."),
        ("control", "hosts:control", "Run a further control of a platform."),
        ("gateway", "hosts:gateway", "Serve requests on a further host."),
        ("join-token", "cluster:join_token", "Print a token for a host that joins."),
        ("certificates", "cluster:certificates", "Show or replace certificates between hosts."),
        ("down", "down:down", "Stop the platform with all agents and copies."),
        ("status", "status:status", "Show processes, models and failures with reasons."),
        ("deploy", "deploy.command:deploy", "Deploy a folder, file, hub id or image."),
        ("top", "top.command:top", "Show live load, latency, copies, CPU and memory."),
        ("ls", "models.ls:ls", "List endpoints, components and adapters."),
        ("chat", "calls.chat:chat", "Chat with a model or adapter."),
        ("invoke", "calls.invoke:invoke", "Send a file to a model and print the answer."),
        ("load", "load.command:load", "Send load and measure latency and errors."),
        ("scale", "models.scale:scale", "Set a model's number of copies, or bounds."),
        ("adapters", "models.adapters:adapters", "Add, remove and list adapters."),
        ("rm", "models.rm:rm", "Remove models and the resources that only they use."),
        ("console", "console:console", "Print a one-time link to the web console."),
        ("apply", "declared.apply:apply", "Make endpoints, scaling and alarms match documents."),
        ("export", "declared.export:export", "Write current resources as a document for `apply`."),
        (
            "permissions",
            "permissions:permissions",
            "Show which policy allows or denies an action.",
        ),
        ("explain", "explain:explain", "Show where copies are placed, why, and free capacity."),
        ("restart", "acts:restart", "Replace copies with new copies."),
        ("drain", "acts:drain", "Move copies off an instance and end it."),
        ("logs", "logs:logs", "Print logs of processes and model servers."),
        ("trace", "trace:trace", "Show each hop of one call, or the slowest and failed calls."),
        ("replay", "replay:replay", "Simulate scaling policies on a trace."),
        ("fit", "fit:fit", "Choose the hosting option for models, by simulation."),
        ("compare", "compare:compare", "Decide whether a new version is worse than the old."),
        ("usage", "usage:usage", "Show the usage of serverless endpoints, by hour."),
        ("quotas", "quotas:quotas", "Limit what callers may use, and show how much they do."),
        ("cost", "cost.command:cost", "Show what endpoints, models and idle time cost."),
        ("accounts", "accounts.accounts:accounts", "Create, list, close and delete accounts."),
        ("users", "accounts.accounts:users", "Create, list and delete users of accounts."),
        ("keys", "accounts.keys:keys", "Create, list, rotate and revoke keys."),
        ("env", "environment:env", "Print environment variables for clients."),
        ("exec", "environment:exec_", "Run a program that uses this platform, not AWS."),
        ("check", "check:check", "Run a program and report calls that are not served."),
        ("demo", "demo:demo", "Start a platform, serve three adapters, and stop."),
        ("demo-model", "demo:demo_model_command", "Write the demo's base model to a folder."),
        ("cells", "cells.command:cells", "Route to several platforms and move endpoints."),
        ("graph", "graph:graph", "Check graphs of models (graph.yaml)."),
        ("jobs", "jobs:jobs", "Show asynchronous requests, batches, transform jobs."),
        ("kernel", "kernel:kernel", "Manage Jupyter kernels that use this platform."),
        ("runtimes", "runtimes:runtimes", "Install, list and remove engines and frameworks."),
        ("scaling", "scaling:scaling", "Show scaling decisions, and choose a policy."),
        ("dashboards", "dashboards.command:dashboards", "Print files for Grafana and Prometheus."),
        ("audit", "audit:audit", "List, verify and export the audit log."),
        ("store", "store:store", "Move records between SQLite and PostgreSQL."),
        ("prune", "prune:prune", "Show or remove unused uploads and models."),
        ("backup", "backup:backup", "Back up a running home, or verify a backup."),
        ("upgrade", "upgrade:upgrade", "Replace an earlier version that is running."),
        ("doctor", "doctor.command:doctor", "Show what this machine supports and lacks."),
        ("completion", "completion:completion", "Print the completion script for a shell."),
    )
)
LAB_COMMANDS = (
    CommandEntry(
        "chaos", "hostelry_lab.commands:chaos", "Break the platform and measure how it recovers."
    ),
)
app = typer.Typer(
    name="hostelry",
    cls=lazy_group(COMMANDS + (LAB_COMMANDS if find_spec("hostelry_lab") else ())),
    help="Host many models and LoRA adapters behind Amazon SageMaker's inference APIs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def print_version(wanted: bool) -> None:
    """Print the version and exit, if the option is given."""
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
    """Every command, imported, for tests and for the generated reference."""
    tree = get_command(app)
    assert isinstance(tree, LazyGroup)
    tree.load_all()
    return tree


def main() -> None:
    """Run the command line. An expected error is printed as one line."""
    if os.environ.get("_HOSTELRY_COMPLETE") == "complete_bash":
        # Imported here, because only a completing shell needs it.
        from hostelry.cli.completion import join_words

        join_words(os.environ)
    sys.stdout, sys.stderr = printable_stream(sys.stdout), printable_stream(sys.stderr)
    sys.exit(run(app))


def run(command: Callable[[], object]) -> int:
    """Run `command`. Returns its exit code: 2 for wrong arguments, 1 for another expected error."""
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
