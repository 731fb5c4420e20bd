"""Execution of `hostelry replay`; imports numpy and the simulator."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.home_option import print_json
from hostelry.cli.replay_calibrate import calibrate
from hostelry.cli.replay_text import act_lines, comparison_lines
from hostelry.domain.shape import Requirements
from hostelry.sim.deployment import SimulatedDeployment
from hostelry.sim.outcome import ReplayOutcome, replayed
from hostelry.sim.policy_file import read_policy
from hostelry.sim.policy_set import PolicySet
from hostelry.sim.replay import Progress, ReplaySetup
from hostelry.sim.scenario import DEFAULT_SEED, SCENARIOS, scenario_trace
from hostelry.sim.service import ServiceModel, default_service, load_service, save_service
from hostelry.sim.trace import Trace
from hostelry.sim.trace_file import trace_of_file, write_trace

MIB = 2**20
PROGRESS_EVERY_S = 2.0


class Against(NamedTuple):
    """The deployment, service model and seed that every policy is replayed on."""

    deployment: SimulatedDeployment
    service: ServiceModel
    seed: int


@contextmanager
def possible() -> Iterator[None]:
    """Turn a ValueError of an option into an error of the command line."""
    try:
        yield
    except ValueError as error:
        raise TerminalError(f"invalid options: {error}") from None


def chosen_seed(seed: int | None) -> int:
    """The seed, or the one that every replay without a seed has."""
    return DEFAULT_SEED if seed is None else seed


def service_model(path: Path | None) -> ServiceModel:
    """The calibration of a file, or the one that is shipped."""
    return default_service() if path is None else load_service(path)


def requirements(cpus: float, memory_mib: int, accelerators: int) -> Requirements:
    """The reservation of a copy; raises ValueError for values out of range."""
    if not (0.0 <= cpus <= 4096.0 and 0 < memory_mib <= 1 << 24 and 0 <= accelerators <= 64):
        raise ValueError(
            f"a copy of {cpus:g} CPUs, {memory_mib} MiB and {accelerators} accelerators; it must "
            "have 0 to 4096 CPUs, 1 MiB to 16 TiB and 0 to 64 accelerators"
        )
    return Requirements(
        min_memory_bytes=memory_mib * MIB, cpus=cpus, accelerators=float(accelerators)
    )


def compare(
    fresh: Callable[[], Trace],
    paths: Sequence[Path] | None,
    against: Against,
    *,
    as_json: bool,
    acts: bool,
) -> None:
    """Replay the trace with each policy, and print the outcomes."""
    if not paths:
        raise TerminalError(
            "no --policy FILE is given: it holds what PutScalingPolicy takes; "
            "examples/policies has some"
        )
    setups = [
        ReplaySetup(
            policies=policies,
            deployment=against.deployment,
            service=against.service,
            seed=against.seed,
        )
        for policies in named_apart([read_policy(it) for it in paths])
    ]
    show([run(fresh, it) for it in setups], against.service, as_json=as_json, acts=acts)


def chosen_trace(
    path: Path | None, scenario: str | None, seed: int, limit: int | None
) -> Callable[[], Trace]:
    """A function that makes the trace once per policy; raises TerminalError without one trace."""
    if (path is None) is (scenario is None):
        raise UsageError(
            "give one of --trace FILE and --scenario NAME; --list prints the scenarios"
        )
    if path is not None:
        return lambda: trace_of_file(path, limit)
    assert scenario is not None, "one of both was given"
    return lambda: scenario_trace(scenario, seed)


def write(trace: Trace, path: Path) -> None:
    """Write the trace as CSV, and print its number of rows."""
    typer.echo(f"{write_trace(trace, path):,} rows written to {path}")


def named_apart(policies: Sequence[PolicySet]) -> list[PolicySet]:
    """The policies, with a number behind each repeated name."""
    found: list[PolicySet] = []
    for policy in policies:
        same = sum(known.name.partition(" #")[0] == policy.name for known in found)
        found.append(replace(policy, name=f"{policy.name} #{same + 1}") if same else policy)
    return found


def run(fresh: Callable[[], Trace], setup: ReplaySetup) -> ReplayOutcome:
    """One replay, with its progress on standard error."""
    return replayed(fresh(), setup, progress_printer(setup.policies.name))


def progress_printer(name: str, every_s: float = PROGRESS_EVERY_S) -> Progress:
    """A callback that prints the progress of a replay every few seconds."""
    began_s = printed_s = monotonic_s()

    def report(num_requests: int, at_s: float) -> None:
        nonlocal printed_s
        now_s = monotonic_s()
        if now_s - printed_s >= every_s:
            printed_s = now_s
            rate = num_requests / max(now_s - began_s, 1e-9)
            typer.echo(
                f"{name}: {num_requests:,} requests, {at_s / 3600:.1f} h of the trace, "
                f"{rate:,.0f} requests a second",
                err=True,
            )

    return report


def show(
    outcomes: Sequence[ReplayOutcome], service: ServiceModel, *, as_json: bool, acts: bool
) -> None:
    """Print JSON, or the policies side by side."""
    if as_json:
        print_json({"service": service, "outcomes": outcomes})
        return
    first = outcomes[0]
    hours = first.lasts_s / 3600
    typer.echo(
        f"{first.trace}: {first.num_requests:,} requests in {hours:.2f} h; seed {first.seed}"
    )
    typer.echo(f"service times: {service.origin or 'of the given calibration'}")
    typer.echo("\n".join(["", *comparison_lines(outcomes)]))
    if acts:
        typer.echo("\n".join(line for it in outcomes for line in ["", *act_lines(it)]))


def show_scenarios() -> None:
    """Print every scenario with its description."""
    width = max(len(it) for it in SCENARIOS)
    for scenario in SCENARIOS.values():
        typer.echo(f"{scenario.name:{width}}  {scenario.about}")


def measured(aim: str, home: Path | None, path: Path | None) -> None:
    """Measure a running component and write the calibration."""
    endpoint, _, component = aim.partition("/")
    if not endpoint or path is None:
        raise UsageError(
            "--calibrate takes ENDPOINT/COMPONENT (ENDPOINT alone for a model), and --service FILE "
            "says where to write"
        )
    found = calibrate(endpoint, component or None, home, lambda line: typer.echo(line, err=True))
    save_service(found, path)
    typer.echo(f"written to {path}")
