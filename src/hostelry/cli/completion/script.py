"""`hostelry completion SHELL`: the script for completion in a shell."""

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined] # not in __all__

from hostelry.cli.completion.words import COMPLETE_VARIABLE


class ShellName(StrEnum):
    """Shells that can be given a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        ShellName, typer.Argument(help="Shell: bash, zsh or fish.", show_default=False)
    ],
) -> None:
    """Print the shell script that completes commands, options, and names on the running platform.

    `hostelry --install-completion` writes the script into the startup file of your shell.

    Example: source <(hostelry completion bash)

    Example: hostelry completion fish > ~/.config/fish/completions/hostelry.fish
    """
    typer.echo(
        get_completion_script(
            prog_name="hostelry", complete_var=COMPLETE_VARIABLE, shell=shell.value
        )
    )
