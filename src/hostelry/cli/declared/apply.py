"""`hostelry apply`: make what is there what documents say."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.declared.application import Application, with_uploads
from hostelry.cli.declared.aws import AwsAtPlatform
from hostelry.cli.declared.diff_text import diff_lines, steps_document
from hostelry.cli.declared.execution import AppliedEnd
from hostelry.cli.declared.expansion import wanted_state
from hostelry.cli.declared.progress import TerminalProgress
from hostelry.cli.declared.resource import UNNAMED_SET
from hostelry.cli.declared.schema import schema_text
from hostelry.cli.declared.source import read_sources
from hostelry.cli.declared.step import StepPlan
from hostelry.cli.declared.upload import BUCKET
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.home.home import Credentials, UpConfig
from hostelry.home.upload_lock import uploading

DIFFERENT = 3
"""The exit code of --diff where there is something to change."""


def apply(  # noqa: PLR0913 - the options of a command
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            "-f",
            help="YAML or JSON file, or folder of such files. Use - for standard input.",
        ),
    ] = None,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff",
            help=("Show the changes without making them. The exit code is 3 if there are changes."),
        ),
    ] = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help=(
                "Delete resources that an earlier version of the set created and this "
                "version does not name."
            ),
        ),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Delete and replace resources without asking for confirmation."
        ),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until every resource is InService.")
    ] = True,
    bucket: Annotated[str, typer.Option(help="Bucket to upload local artifacts to.")] = BUCKET,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the documents and exit.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make endpoints, models, components, scaling and alarms match the documents.

    Exit code 0 if everything is done or nothing had to change, 1 if a step failed, 3 with --diff if
    there are changes.

    Example: hostelry apply -f shop.yaml --diff
    """
    if schema:
        typer.echo(schema_text(), nl=False)
        return
    if not file:
        raise typer.BadParameter("name a file, a folder, or - for standard input", param_hint="-f")
    at = home_at(home)
    config, credentials = settled(at)
    application = application_of(file, bucket, config, credentials, prune=prune, waits=wait)
    if diff:
        plan = application.plan(application.observe())
        if as_json:
            print_json({"set": application.wanted.owner, "steps": steps_document(plan)})
        else:
            show(plan)
        raise typer.Exit(DIFFERENT if plan.steps else 0)
    began = time.perf_counter()
    with uploading(at):
        first = application.converge(lambda plan: confirm(plan, yes=yes, quiet=as_json))
    if as_json:
        print_json(report(application, first))
    elif first.steps:
        seconds = time.perf_counter() - began
        typer.echo(f"Applied: {summary(application)} in {seconds:.1f} s.")


def application_of(
    files: list[Path],
    bucket: str,
    config: UpConfig,
    credentials: Credentials,
    *,
    prune: bool,
    waits: bool,
) -> Application:
    """The documents' application; raises TerminalError for what they may not say."""
    wanted = wanted_state(read_sources(files), credentials.role_arn)
    if prune and wanted.owner == UNNAMED_SET:
        raise UsageError(
            "--prune deletes what a set of documents made before and no longer names; give them a"
            " name first, a line `set: NAME` in one of them, and apply without --prune once"
        )
    wanted, uploads = with_uploads(wanted, bucket)
    is_terminal = sys.stderr.isatty()
    return Application(
        aws=AwsAtPlatform(config, credentials),
        wanted=wanted,
        uploads=uploads,
        prune=prune,
        pause=time.sleep,
        listener=TerminalProgress(is_terminal=is_terminal),
        waits=waits,
    )


def show(plan: StepPlan) -> None:
    """Print a plan, in colours on a terminal."""
    for colour, text in diff_lines(plan):
        typer.secho(text, fg=colour or None)


def confirm(plan: StepPlan, *, yes: bool, quiet: bool) -> None:
    """Show the plan; ask before anything that serves is deleted or replaced.

    Raises TerminalError where the answer is no, or no one can be asked.
    """
    if not quiet:
        show(plan)
    ended = list(dict.fromkeys(str(it.key) for it in plan.steps if it.is_destructive))
    if not ended or yes:
        return
    if quiet or not sys.stdin.isatty():
        raise TerminalError(f"this deletes or replaces {', '.join(ended)}: give --yes to do it")
    if not typer.confirm(f"Delete or replace {', '.join(ended)}?"):
        raise TerminalError("nothing was changed")


def report(application: Application, first: StepPlan) -> dict[str, object]:
    """The result for programs."""
    return {
        "set": application.wanted.owner,
        "same": first.num_same,
        "steps": [
            {
                "act": one.step.act.value,
                "kind": one.step.key.kind.value,
                "name": one.step.key.name,
                "operation": one.step.operation,
                "end": one.end.value,
                "seconds": round(one.seconds, 3),
            }
            for one in application.outcomes
        ],
    }


def summary(application: Application) -> str:
    """The number of steps that were carried out, by their effect."""
    counts: dict[str, int] = {}
    for outcome in application.outcomes:
        if outcome.end is AppliedEnd.DONE:
            word = outcome.step.act.value
            counts[word] = counts.get(word, 0) + 1
    plural = {word: f"{word}{'' if count == 1 else 's'}" for word, count in counts.items()}
    return ", ".join(f"{count} {plural[word]}" for word, count in counts.items())
