"""`hostelry env` and `hostelry exec`: have a program use the hostelry instead of AWS."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hostelry.base.private_file import write_whole
from hostelry.cli.client_environment import HINT, client_variables, shell_lines
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.cli.program.child import CannotRunError, end_as
from hostelry.cli.program.report import CallReport, report_lines, stray_lines
from hostelry.home.run_file import live_run_files


def env(
    home: HomeOption = None,
    shell: Annotated[
        str, typer.Option(help="Shell syntax of the output: sh, bash, zsh, fish or powershell.")
    ] = "sh",
    as_json: JsonOption = False,
) -> None:
    """Print the variables that make boto3, the AWS CLI and OpenAI clients use this platform.

    Example: eval "$(hostelry env)"

    Example: hostelry env --shell fish | source
    """
    at = home_at(home)
    config, credentials = settled(at)
    variables = client_variables(config, credentials)
    if as_json:
        print_json(variables)
    else:
        typer.echo("\n".join([*shell_lines(shell, variables), HINT]))
        if sys.stderr.isatty():
            typer.echo(f"hostelry: {HINT.removeprefix('# ')}", err=True)
    if not live_run_files(at):
        typer.echo(f"hostelry: not running in {at.root}; start it with `hostelry up`", err=True)


def exec_(
    command: Annotated[
        list[str], typer.Argument(metavar="PROGRAM", help="Program to run, with its arguments.")
    ],
    home: HomeOption = None,
    report: Annotated[
        bool, typer.Option("--report", help="Print the program's AWS calls when it ends.")
    ] = False,
    report_file: Annotated[
        Path | None,
        typer.Option("--report-file", help="Write the list of AWS calls to this file, as JSON."),
    ] = None,
) -> None:
    """Run a program that uses this platform instead of AWS.

    boto3, the AWS CLI, Terraform and the SageMaker Python SDK work unmodified. Your AWS files and
    profiles are not read or changed. Calls to hosts of AWS are answered by this platform, or
    refused by name. Other hosts are reached as usual. The exit code is the program's.

    Example: hostelry exec -- python my_program.py

    Example: hostelry exec --report -- aws sagemaker list-endpoints
    """
    # Imported here: `env` needs neither TLS nor HTTP.
    import asyncio

    from hostelry.cli.program.run import run_program

    at = home_at(home)
    seen = CallReport()
    try:
        code = asyncio.run(
            run_program(at, command, seen.add, recording=report or report_file is not None)
        )
    except CannotRunError as error:
        typer.echo(f"hostelry: {error}", err=True)
        raise typer.Exit(error.code) from None
    if report_file is not None:
        write_whole(report_file, msgspec.json.format(msgspec.json.encode(seen.to_json())))
    for line in report_lines(seen) if report else stray_lines(seen):
        typer.echo(f"hostelry: {line}", err=True)
    end_as(code)
