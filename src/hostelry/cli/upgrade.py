"""`hostelry upgrade`. It is apart from `down`, which needs no client of an agent."""

import typer
from msgspec.structs import asdict

from hostelry import __version__
from hostelry.base.clock import monotonic_s
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json
from hostelry.cli.wait_display import waiting
from hostelry.processes.upgrade import upgrade_host


def upgrade(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Replace the processes of an earlier version by this version, under traffic.

    Gateway workers are replaced after their successors serve, then control, jobs and the object
    store one after another, then the agents. Copies continue to run. Run the command on each host
    after this version is installed: first on hosts with control, the leader's last, then on hosts
    with gateways.

    Example: pip install --upgrade hostelry && hostelry upgrade
    """
    started = monotonic_s()
    with waiting() as display:
        done = upgrade_host(home_at(home), display.phase)
    took_s = round(monotonic_s() - started, 1)
    if as_json:
        print_json({"version": __version__, **asdict(done), "seconds": took_s})
        return
    for title, names in (
        ("replaced", done.replaced),
        ("adopted as they are", done.adopted),
        ("agents replaced, whose copies run on", done.agents),
    ):
        typer.echo(f"{title}: {', '.join(names) or 'none'}")
    if done.leads is False:
        typer.echo("its control stands by; agents are replaced on the host whose control leads")
    typer.echo(f"Hostelry {__version__} has taken over ({took_s:g} s).")
