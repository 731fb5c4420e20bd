"""`hostelry store`: copy records between SQLite and PostgreSQL, and release a database."""

from typing import Annotated

import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import UsageError
from hostelry.base.operator_secrets import hide_argument
from hostelry.cli.home_option import JsonOption, print_json
from hostelry.cli.wait_display import waiting
from hostelry.control.store_transfer import copy_store
from hostelry.store.claim import release as release_claim
from hostelry.store.database import open_database

store = typer.Typer(help="Copy the platform's records between databases.", no_args_is_help=True)


@store.callback()
def _group() -> None:
    """Records of the platform: move them between databases, give a database up."""


@store.command()
def copy(
    source: Annotated[str, typer.Option("--from", help="Source: home folder, or postgresql://...")],
    target: Annotated[str, typer.Option("--to", help="Target: home folder, or postgresql://...")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite all records of the target.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy all records, metrics and the audit log from one database to another.

    The platform must be stopped. The copy is committed only if all rows were copied and compared.
    After a failure the target has its earlier contents. The source is not changed.

    Example: hostelry store copy --from ~/.hostelry --to postgresql://hostelry@db.example/hostelry
    """
    for place in (source, target):
        if "://" in place:
            hide_argument(place)
    started = monotonic_s()
    with waiting() as display:
        copied = copy_store(
            source,
            target,
            replace=replace,
            report=lambda table, done, total: display.phase(f"{table}: {done} of {total} rows"),
        )
    took_s = monotonic_s() - started
    if as_json:
        print_json({"tables": copied, "seconds": round(took_s, 2)})
        return
    for table in copied:
        typer.echo(f"{table.name:24} {table.num_rows:10} rows  {table.digest[:16]}")
    typer.echo(f"Copied and compared in {took_s:.1f} s. `hostelry up --store` chooses the store.")


@store.command()
def release(
    url: Annotated[str, typer.Option("--store", help="URL of the database: postgresql://...")],
    as_json: JsonOption = False,
) -> None:
    """Allow another home to use a database whose home is lost. The records stay.

    Example: hostelry store release --store postgresql://hostelry@db.example/hostelry
    """
    hide_argument(url)
    if "://" not in url:
        raise UsageError("--store: expected postgresql://USER@HOST/DATABASE")
    database = open_database(url)
    try:
        found = release_claim(database)
    finally:
        database.close()
    if as_json:
        print_json({"store": database.place, "released": found})
    elif found is None:
        typer.echo(f"No home claims {database.place}.")
    else:
        typer.echo(f"{database.place} is no longer that of {found.home}.")
