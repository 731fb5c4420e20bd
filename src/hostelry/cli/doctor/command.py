"""`hostelry doctor`."""

import os
import textwrap
from collections.abc import Sequence

import msgspec
import typer

from hostelry.cli.doctor.checks import Check, CheckVerdict, cannot_run, run_checks
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json

WIDTH = 100
RUNS, RUNS_NOT = "Hostelry can run here.", "Hostelry cannot run here."


def doctor(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show what this machine supports, what is missing, what that costs, and how to get it.

    The command changes nothing. Exit code 1 only if Hostelry cannot run on this machine.

    Example: hostelry doctor

    Example: hostelry doctor --json
    """
    # Imported here, because completion does not need the probes' modules.
    from hostelry.cli.doctor.probes import machine_facts

    facts = machine_facts(home_at(home), os.environ)
    checks = run_checks(facts)
    if as_json:
        shown = {"can_run": not cannot_run(checks), "checks": checks, "facts": facts}
        print_json(msgspec.to_builtins(shown))
    else:
        typer.echo("\n".join(check_lines(checks)))
    if cannot_run(checks):
        raise typer.Exit(1)


def check_lines(checks: Sequence[Check]) -> list[str]:
    """The checks as text. Below each check that is not OK are its cost and remedy."""
    lines: list[str] = []
    width = max(len(it.name) for it in checks)
    margin = " " * (width + 11)
    for check in checks:
        head = f"{check.verdict.value:<8} {check.name:<{width}}  "
        lines += textwrap.wrap(check.found, WIDTH, initial_indent=head, subsequent_indent=margin)
        if check.verdict is CheckVerdict.OK:
            continue
        for text in (check.costs, f"-> {check.mend}" if check.mend else ""):
            lines += textwrap.wrap(text, WIDTH, initial_indent=margin, subsequent_indent=margin)
    counts = [f"{sum(it.verdict is kind for it in checks)} {kind.value}" for kind in CheckVerdict]
    verdict = RUNS_NOT if cannot_run(checks) else RUNS
    return [*lines, "", f"{verdict} {', '.join(counts)}."]
