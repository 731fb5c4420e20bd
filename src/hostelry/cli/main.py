"""The `hostelry` command."""

import sys
from collections.abc import Callable

import typer

from hostelry import __version__
from hostelry.base.errors import HostelryError
from hostelry.cli.chaos import chaos
from hostelry.cli.demo import demo
from hostelry.cli.demo_model import demo_model_command
from hostelry.cli.environment import env, exec_
from hostelry.cli.explain import explain
from hostelry.cli.logs import logs
from hostelry.cli.replay import replay
from hostelry.cli.scaling import scaling
from hostelry.cli.status import status
from hostelry.cli.up import down, up

app = typer.Typer(
    name="hostelry",
    help="Host many models and LoRA adapters behind Amazon SageMaker's inference APIs, here.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
# Everything after the program's name belongs to the program, with or without `--`.
PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
app.command()(up)
app.command()(down)
app.command()(status)
app.command()(explain)
app.command()(logs)
app.command()(replay)
app.command()(env)
app.command("exec", context_settings=PASS_ON)(exec_)
app.command()(demo)
app.command("demo-model")(demo_model_command)
app.add_typer(chaos, name="chaos")
app.add_typer(scaling, name="scaling")


@app.command()
def version() -> None:
    """Print the version.

    Example: hostelry version
    """
    typer.echo(f"hostelry {__version__}")


def main() -> None:
    """Run the command line; an error on purpose is one line and exit code 1."""
    sys.exit(run(app))


def run(command: Callable[[], object]) -> int:
    """The exit code of a command that raises only what it means to."""
    try:
        command()
    except HostelryError as error:
        typer.echo(f"hostelry: {error}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    main()
