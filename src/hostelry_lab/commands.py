"""`hostelry chaos list` and `hostelry chaos run`."""

import secrets
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.operator_secrets import hide_argument
from hostelry.cli import completion as names
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry_lab.copies_ledger import LEAST_COPIES, MOST_COPIES
from hostelry_lab.drill_text import outcome_lines, table_lines
from hostelry_lab.jobs.plan import FULL, SHORT, JobsSizes
from hostelry_lab.outcome import DrillOutcome

DEFAULT_THREADS = 4
# More notifications would not fit into the files of their topics.
MAX_REQUESTS, MAX_RECORDS, MAX_KILLS = 20_000, 1_000_000, 100
JOBS, CLUSTER, MANY_COPIES = "jobs", "cluster", "many-copies"
MAX_COPIES = 300
MAX_SEED = 1_000_000

LoadOption = Annotated[
    int,
    typer.Option(
        min=1, max=64, help="Number of clients that invoke the endpoint during the drill."
    ),
]
EndpointOption = Annotated[
    str | None,
    typer.Option(
        help="Endpoint to invoke. Default: the first endpoint with a ready copy.",
        autocompletion=names.endpoints,
    ),
]
ComponentOption = Annotated[
    str | None,
    typer.Option(
        help="Component to invoke. Default: the first component with a ready copy.",
        autocompletion=names.components,
    ),
]
CopiesOption = Annotated[
    int | None,
    typer.Option(
        min=LEAST_COPIES,
        max=MAX_COPIES,
        help=("many-copies: maximum number of components. Default: as many as fit, up to 100."),
    ),
]

chaos = typer.Typer(
    help="Break a running platform on purpose and measure how it recovers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
RequestsOption = Annotated[
    int | None,
    typer.Option(
        min=10, max=MAX_REQUESTS, help="jobs: number of asynchronous requests. Default: 10000."
    ),
]
RecordsOption = Annotated[
    int | None,
    typer.Option(
        min=100, max=MAX_RECORDS, help="jobs: number of records in the batch. Default: 100000."
    ),
]
KillsOption = Annotated[
    int | None,
    typer.Option(min=0, max=MAX_KILLS, help="jobs: number of processes to kill. Default: 20."),
]
SeedOption = Annotated[
    int | None, typer.Option(help="jobs: seed of an earlier run, to repeat its work and kills.")
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        help=("cluster: URL of an empty database. Default: the drill starts a PostgreSQL.")
    ),
]
ScenariosOption = Annotated[
    str | None,
    typer.Option(help="cluster: scenarios to run, separated by commas. Default: all."),
]


@chaos.command("list")
def list_drills(as_json: JsonOption = False) -> None:
    """List the drills with what each does.

    Example: hostelry chaos list
    """
    # Imported here, since drills import botocore, which other commands need not wait for.
    from hostelry_lab.catalogue import DRILLS, EVERYTHING
    from hostelry_lab.cluster.drill import DOES, NEEDS

    if as_json:
        shown = [{"name": it.name, "does": it.does} for it in DRILLS]
        print_json([*shown, {"name": CLUSTER, "does": DOES, "needs": NEEDS}])
        return
    width = max(len(drill.name) for drill in DRILLS)
    for drill in DRILLS:
        typer.echo(f"{drill.name:{width}}  {drill.does}")
    typer.echo(f"{EVERYTHING:{width}}  all of them, one after the other")
    typer.echo(
        f"{CLUSTER:{width}}  {DOES}; not part of {EVERYTHING}. It needs no platform:\n"
        f"{'':{width}}  {NEEDS}"
    )


@chaos.command("run", short_help="Run a drill under load, and print what it measured.")
def run_drill(  # noqa: PLR0913 - each is an option of the command
    name: Annotated[
        str, typer.Argument(help="Name of a drill (see `hostelry chaos list`), or everything.")
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
    load: LoadOption = DEFAULT_THREADS,
    endpoint: EndpointOption = None,
    component: ComponentOption = None,
    requests: RequestsOption = None,
    records: RecordsOption = None,
    kills: KillsOption = None,
    seed: SeedOption = None,
    copies: CopiesOption = None,
    store: StoreOption = None,
    scenarios: ScenariosOption = None,
) -> None:
    """Run a drill on the running platform of a home, under load, and print the measurements.

    The drill kills or stops real processes, and real requests may fail. It only touches processes
    that the home records. If nothing can be invoked, the drill creates an endpoint and removes it
    afterwards. `cluster` starts a separate platform on several hosts, with load clients at two
    gateways.

    Exit code 1 if a target was missed or the drill could not run.

    Example: hostelry chaos run copy-kill

    Example: hostelry chaos run everything --load 8 --json

    Example: hostelry chaos run jobs --requests 1000 --records 10000 --seed 7

    Example: hostelry chaos run cluster --scenarios leader-kill,store-restart
    """
    from hostelry_lab.catalogue import choose_drills
    from hostelry_lab.context import drill_context
    from hostelry_lab.observer import PlatformObserver

    if name != JOBS and {requests, records, kills, seed} != {None}:
        raise UsageError("--requests, --records, --kills and --seed are options of jobs")
    if name != MANY_COPIES and copies is not None:
        raise UsageError(f"--copies is an option of {MANY_COPIES}")
    if name == CLUSTER:
        if {home, endpoint, component} != {None}:
            raise TerminalError(
                f"{CLUSTER} starts a cluster and its endpoint itself: leave out "
                "--home, --endpoint and --component"
            )
        outcome = cluster_outcome(store, scenarios, load)
        if not as_json:
            typer.echo("\n".join(outcome_lines(outcome)))
        finish([outcome], as_json=as_json)
        return
    if {store, scenarios} != {None}:
        raise UsageError(f"--store and --scenarios are options of {CLUSTER}")
    at = home_at(home)
    config, credentials = load_home(at)
    drills = choose_drills(name)
    platform = PlatformObserver(home=at, config=config, credentials=credentials)
    sizes = jobs_sizes(name, requests, records, kills, seed)
    most = copies or MOST_COPIES
    outcomes: list[DrillOutcome] = []
    with drill_context(platform, endpoint, component, load, say, sizes, most) as context:
        say(f"load: {load} clients on {context.load_target}")
        for drill in drills:
            outcomes.append(drill.outcome(context))
            if not as_json:
                typer.echo("\n".join(outcome_lines(outcomes[-1])))
    finish(outcomes, as_json=as_json)


def say(line: str) -> None:
    """Print a line for the operator, separate from the results."""
    typer.echo(line, err=True)


def cluster_outcome(store: str | None, scenarios: str | None, load: int) -> DrillOutcome:
    """Run the drill on a separate cluster."""
    from hostelry_lab.cluster.drill import run_cluster
    from hostelry_lab.cluster.scenarios import chosen_scenarios

    if store is not None:
        hide_argument(store)
    return run_cluster(chosen_scenarios(scenarios), load, store, say)


def finish(outcomes: Sequence[DrillOutcome], *, as_json: bool) -> None:
    """Print the results. Exits with code 1 if a target was missed."""
    show(outcomes, as_json=as_json)
    if not all(it.passed for it in outcomes):
        raise typer.Exit(1)


def jobs_sizes(
    name: str, requests: int | None, records: int | None, kills: int | None, seed: int | None
) -> JobsSizes:
    """Sizes of the drill `jobs`: full if it runs alone, short if it runs among all drills."""
    full = FULL if name == JOBS else SHORT
    return JobsSizes(
        num_requests=full.num_requests if requests is None else requests,
        num_records=full.num_records if records is None else records,
        num_kills=full.num_kills if kills is None else kills,
        seed=secrets.randbelow(MAX_SEED) if seed is None else seed,
    )


def show(outcomes: Sequence[DrillOutcome], *, as_json: bool) -> None:
    """Print JSON, or a table if several drills were run."""
    if as_json:
        shown = [{"verdict": it.verdict, **msgspec.to_builtins(it)} for it in outcomes]
        print_json(shown)
    elif len(outcomes) > 1:
        typer.echo("\n".join(["", *table_lines(outcomes)]))
