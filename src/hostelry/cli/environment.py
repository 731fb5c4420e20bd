"""`hostelry env` and `hostelry exec`: have a program use the hostelry instead of AWS."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from hostelry.base.errors import TerminalError
from hostelry.base.private_file import write_whole
from hostelry.cli.client_environment import (
    client_variables,
    no_proxy,
    shell_lines,
    without_users_aws,
)
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.server.home import ENVIRONMENT_VARIABLE, Credentials, Home, UpConfig
from hostelry.server.run_file import live_run_files

SHIM = Path(__file__).parent / "shim"
NOT_FOUND = 127
NOT_EXECUTABLE = 126


def env(
    home: HomeOption = None,
    shell: Annotated[str, typer.Option(help="Syntax: sh, bash, zsh, fish or powershell.")] = "sh",
    as_json: JsonOption = False,
) -> None:
    """Print the variables that point boto3, the AWS CLI and OpenAI clients here.

    Example: eval "$(hostelry env)"

    Example: hostelry env --shell fish | source
    """
    at = home_at(home)
    config, credentials = settled(at)
    variables = client_variables(config, credentials)
    if as_json:
        print_json(variables)
    else:
        typer.echo("\n".join(shell_lines(shell, variables)))
    if not live_run_files(at):
        typer.echo(f"hostelry: not running in {at.root}; start it with `hostelry up`", err=True)


def exec_(
    command: Annotated[
        list[str], typer.Argument(metavar="PROGRAM", help="The program and its arguments.")
    ],
    home: HomeOption = None,
) -> None:
    """Run a program in an environment in which it uses this hostelry instead of AWS.

    boto3, the AWS CLI and the SageMaker Python SDK work unmodified, and your own AWS files and
    profiles are neither read nor changed. The program's exit code is passed on.

    Example: hostelry exec -- python my_program.py

    Example: hostelry exec -- aws sagemaker list-endpoints
    """
    at = home_at(home)
    config, credentials = settled(at)
    if not live_run_files(at):
        raise TerminalError(f"no hostelry runs in {at.root}: start it with `hostelry up`")
    write_client_files(at, credentials)
    environment = exec_environment(os.environ, at, config, credentials)
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        typer.echo(f"hostelry: {command[0]}: command not found", err=True)
        raise typer.Exit(NOT_FOUND) from None
    except OSError as error:
        typer.echo(f"hostelry: {command[0]}: {error.strerror}", err=True)
        raise typer.Exit(NOT_EXECUTABLE) from None


def exec_environment(
    inherited: Mapping[str, str], home: Home, config: UpConfig, credentials: Credentials
) -> dict[str, str]:
    """The environment of a program under `hostelry exec`. Pure."""
    kept = without_users_aws(inherited)
    python_path = [str(SHIM), *filter(None, [kept.get("PYTHONPATH")])]
    direct = no_proxy(kept, config.host)
    return {
        **kept,
        **client_variables(config, credentials),
        "AWS_CONFIG_FILE": str(client_folder(home) / "aws-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(client_folder(home) / "aws-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": str(client_folder(home) / "sagemaker.yaml"),
        "NO_PROXY": direct,
        "no_proxy": direct,
        "PYTHONPATH": os.pathsep.join(python_path),
        ENVIRONMENT_VARIABLE: str(home.root),
    }


def client_folder(home: Home) -> Path:
    """The folder of the files that replace the user's own."""
    return home.root / "client"


def write_client_files(home: Home, credentials: Credentials) -> None:
    """Write the empty AWS files and the SageMaker SDK's configuration."""
    folder = client_folder(home)
    folder.mkdir(mode=0o700, exist_ok=True)
    contents = {
        "aws-config": "",
        "aws-credentials": "",
        "sagemaker.yaml": sagemaker_configuration(credentials),
    }
    for name, text in contents.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            write_whole(path, text.encode())


def sagemaker_configuration(credentials: Credentials) -> str:
    """Defaults of the SDK: its usual bucket without a call for the account, no telemetry."""
    bucket = f"sagemaker-{credentials.region}-{credentials.account_id}"
    return (
        "SchemaVersion: '1.0'\n"
        "SageMaker:\n"
        "  PythonSDK:\n"
        "    Modules:\n"
        "      TelemetryOptOut: true\n"
        "      Session:\n"
        f"        DefaultS3Bucket: {bucket}\n"
    )
