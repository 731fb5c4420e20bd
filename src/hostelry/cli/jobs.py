"""`hostelry jobs`."""

import typer

from hostelry.cli.transform_watch import watch

jobs = typer.Typer(
    help="Follow transform jobs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
jobs.command(short_help="Show a transform job's progress until it is over.")(watch)


@jobs.callback()
def _group() -> None:
    """Keep the verb, also while it is the only one."""
