"""`hostelry env` and `hostelry exec`: have a program use the hostelry instead of AWS."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hostelry.base.errors import UsageError
from hostelry.base.files import write_whole
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.program.call import CallReport, is_aws, report_lines, stray_lines
from hostelry.cli.program.child import CannotRunError, end_as
from hostelry.home.home import Credentials, UpConfig
from hostelry.home.ports import reachable_host
from hostelry.home.run_file import live_run_files

# The user's settings that would override ours, or that do not fit another endpoint.
REMOVED = (
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_CA_BUNDLE",
)
# Every shell takes this line as a comment. It is last, as `eval $(hostelry env)` joins all lines.
HINT = (
    "# The SageMaker SDKs also call AWS's own hosts, which no variable changes: run programs that"
    " use them with `hostelry exec -- PROGRAM`."
)
REMOVED_PREFIX = "AWS_ENDPOINT_URL"


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
    config, credentials = load_home(at)
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
    # Imported here, because `env` needs neither TLS nor HTTP.
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


def client_variables(config: UpConfig, credentials: Credentials) -> dict[str, str]:
    """The variables that `hostelry env` prints."""
    # boto3 reads the first variable, OpenAI's client reads the second.
    bundle = ("AWS_CA_BUNDLE", "SSL_CERT_FILE") if config.https_ca else ()
    return {
        "AWS_ENDPOINT_URL": config.client_url,
        "AWS_ENDPOINT_URL_S3": config.client_s3_url,
        "AWS_ACCESS_KEY_ID": credentials.access_key_id,
        "AWS_SECRET_ACCESS_KEY": credentials.secret_access_key,
        "AWS_DEFAULT_REGION": credentials.region,
        "AWS_REGION": credentials.region,
        "OPENAI_BASE_URL": f"{config.client_url}/v1",
        "OPENAI_API_KEY": credentials.openai_api_key,
        **dict.fromkeys(bundle, config.https_ca or ""),
    }


def without_users_aws(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the user's AWS settings that would interfere."""
    return {
        name: value
        for name, value in environment.items()
        if name not in REMOVED and not name.startswith(REMOVED_PREFIX)
    }


def no_proxy(environment: Mapping[str, str], host: str) -> str:
    """NO_PROXY with this platform's host added, so that requests to loopback use no proxy."""
    present = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    entries = [entry for entry in present.split(",") if entry]
    own = ["127.0.0.1", "localhost", reachable_host(host)]
    return ",".join(dict.fromkeys([*entries, *own]))


def no_proxy_for_program(environment: Mapping[str, str], host: str) -> str:
    """NO_PROXY, without AWS's hosts, for a program whose HTTPS goes through our proxy.

    For other hosts our proxy applies the user's NO_PROXY.
    """
    kept = [entry for entry in no_proxy(environment, host).split(",") if not covers_aws(entry)]
    return ",".join(kept)


def covers_aws(entry: str) -> bool:
    """Whether an entry of NO_PROXY covers hosts of AWS."""
    return entry.strip() == "*" or is_aws(entry.strip().lstrip("*."))


def shell_lines(shell: str, variables: Mapping[str, str]) -> list[str]:
    """Lines that set the variables in `sh` (bash, zsh), `fish` or `powershell`."""
    match shell:
        case "sh" | "bash" | "zsh":
            return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        case "fish":
            return [f"set -gx {name} {fish_quote(value)};" for name, value in variables.items()]
        case "powershell":
            return [f"$Env:{name} = {powershell_quote(value)}" for name, value in variables.items()]
    raise UsageError(f"--shell {shell}: expected sh, bash, zsh, fish or powershell")


def fish_quote(value: str) -> str:
    """A single-quoted fish string."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def powershell_quote(value: str) -> str:
    """A single-quoted PowerShell string."""
    return "'" + value.replace("'", "''") + "'"
