"""`hostelry replay`: real policies, placement and routing against a trace, on a virtual clock."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.cli.home_option import HomeOption, JsonOption
from hostelry.cli.replay_calibrate import calibrate
from hostelry.cli.replay_text import act_lines, comparison_lines
from hostelry.domain.at_zero import AtZero
from hostelry.domain.component import PlacementStrategy
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.shape import Requirements
from hostelry.fleet.shapes import shape_of
from hostelry.sim.deployment import Deployment
from hostelry.sim.outcome import Outcome, replayed
from hostelry.sim.policy_file import read_policy
from hostelry.sim.policy_set import PolicySet
from hostelry.sim.replay import Progress, Setup
from hostelry.sim.scenario import DEFAULT_SEED, SCENARIOS, scenario_trace
from hostelry.sim.service import ServiceModel, default_service, load_service, save_service
from hostelry.sim.trace import Trace
from hostelry.sim.trace_file import trace_of_file, write_trace

MIB = 2**20
TOLD_EVERY_S = 2.0


def replay(  # noqa: PLR0913 - one parameter an option of the command
    trace: Annotated[
        Path | None, typer.Option(help="A CSV file of arrivals; see docs/replay.md.")
    ] = None,
    scenario: Annotated[
        str | None, typer.Option(help="A named synthetic load, one of --list.")
    ] = None,
    policy: Annotated[
        list[Path] | None,
        typer.Option(help="A policy file; again for each policy to compare it with."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the scenario, and of all that is drawn.")
    ] = DEFAULT_SEED,
    as_json: JsonOption = False,
    acts: Annotated[bool, typer.Option("--acts", help="Print each act of scaling.")] = False,
    list_scenarios: Annotated[
        bool, typer.Option("--list", help="Print the scenarios and end.")
    ] = False,
    write_to: Annotated[
        Path | None,
        typer.Option("--write-trace", help="Write the trace as CSV and end.", show_default=False),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Read no more rows than this of --trace.")
    ] = None,
    service: Annotated[
        Path | None,
        typer.Option(help="A calibration. Default: SmolLM2-135M on two cores.", show_default=False),
    ] = None,
    calibrate_on: Annotated[
        str | None,
        typer.Option(
            "--calibrate",
            metavar="ENDPOINT/COMPONENT",
            help="Measure a running component with real requests, write --service FILE, and end.",
            show_default=False,
        ),
    ] = None,
    home: HomeOption = None,
    instance_type: Annotated[str, typer.Option(help="Type of all instances.")] = "ml.m5.2xlarge",
    min_instances: Annotated[int, typer.Option(help="Instances that are always there.")] = 0,
    max_instances: Annotated[int, typer.Option(help="Instances at most.")] = 100,
    copy_cpus: Annotated[float, typer.Option(help="CPUs that a copy reserves.")] = 2.0,
    copy_memory_mib: Annotated[int, typer.Option(help="MiB that a copy reserves.")] = 1024,
    copy_accelerators: Annotated[int, typer.Option(help="Accelerators of a copy.")] = 0,
    initial_copies: Annotated[int, typer.Option(help="Copies at the beginning.")] = 1,
    placement: Annotated[
        PlacementStrategy, typer.Option(help="How copies are put on instances.")
    ] = PlacementStrategy.SPREAD,
    routing: Annotated[
        RoutingStrategy, typer.Option(help="How requests are spread over copies.")
    ] = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
    at_zero: Annotated[
        AtZero, typer.Option(help="Without a copy: requests wait for one, or fail as on AWS.")
    ] = AtZero.HOLD,
    hold_s: Annotated[
        float, typer.Option("--hold", help="Seconds that a request waits for a copy.")
    ] = 60.0,
    max_held: Annotated[int, typer.Option(help="Requests that may wait for a model.")] = 1024,
    idle_release_s: Annotated[
        float, typer.Option("--idle-release", help="Seconds that an empty instance is kept.")
    ] = 300.0,
    start_spread: Annotated[
        float, typer.Option(help="Deviation of the logarithm of start-up times.")
    ] = 0.15,
    pace: Annotated[float, typer.Option(help="Divide cooldowns and low alarms by this.")] = 1.0,
) -> None:
    """Replay a trace against scaling policies: latency, cost, cold requests, spurious acts.

    What decides is the platform's own code (alarms, policies, placement, routing) on a virtual
    clock; how long requests and starts take is modelled, from a calibration. The same seed gives
    the same outcome, bit for bit: its digest is printed.

    Example: hostelry replay --scenario step-4x --policy examples/policies/responsive.json --acts

    Example: hostelry replay --scenario step-4x --policy tracking.json --policy responsive.json

    Example: hostelry replay --trace AzureLLMInferenceTrace_conv.csv --policy mine.json --json

    Example: hostelry replay --scenario chat-steady --write-trace chat.csv

    Example: hostelry replay --calibrate chat/assistant --service assistant.json
    """
    if list_scenarios:
        show_scenarios()
        return
    if calibrate_on is not None:
        measured(calibrate_on, home, service)
        return
    fresh = chosen_trace(trace, scenario, seed, limit)
    if write_to is not None:
        num_rows = write_trace(fresh(), write_to)
        typer.echo(f"{num_rows:,} rows written to {write_to}")
        return
    if not policy:
        raise TerminalError(
            "no --policy FILE is given: it holds what PutScalingPolicy takes; "
            "examples/policies has some"
        )
    try:
        deployment = Deployment(
            instance_type=instance_type,
            shape=shape_of(instance_type),
            requirements=Requirements(
                min_memory_bytes=copy_memory_mib * MIB,
                cpus=copy_cpus,
                accelerators=copy_accelerators,
            ),
            min_instances=min_instances,
            max_instances=max_instances,
            initial_copies=initial_copies,
            placement=placement,
            routing=routing,
            at_zero=at_zero,
            hold_s=hold_s,
            max_held=max_held,
            idle_release_s=idle_release_s,
            start_spread=start_spread,
            pace=pace,
        )
    except ValueError as error:
        raise TerminalError(f"the options cannot be: {error}") from None
    policies = named_apart([read_policy(it) for it in policy])
    model = default_service() if service is None else load_service(service)
    setups = [
        Setup(policies=it, deployment=deployment, service=model, seed=seed) for it in policies
    ]
    show([run(fresh, it) for it in setups], model, as_json=as_json, acts=acts)


def chosen_trace(
    path: Path | None, scenario: str | None, seed: int, limit: int | None
) -> Callable[[], Trace]:
    """What makes the trace anew for each policy; raises TerminalError where it is not one trace."""
    if (path is None) is (scenario is None):
        raise TerminalError(
            "give one of --trace FILE and --scenario NAME; --list prints the scenarios"
        )
    if path is not None:
        return lambda: trace_of_file(path, limit)
    assert scenario is not None, "one of both was given"
    return lambda: scenario_trace(scenario, seed)


def named_apart(policies: Sequence[PolicySet]) -> list[PolicySet]:
    """The policies, with a number behind a name that came before."""
    found: list[PolicySet] = []
    for it in policies:
        same = sum(known.name.partition(" #")[0] == it.name for known in found)
        found.append(replace(it, name=f"{it.name} #{same + 1}") if same else it)
    return found


def run(fresh: Callable[[], Trace], setup: Setup) -> Outcome:
    """One replay, its progress told where it takes long."""
    return replayed(fresh(), setup, telling(setup.policies.name))


def telling(name: str, every_s: float = TOLD_EVERY_S) -> Progress:
    """Tells how far a replay has come, every few seconds."""
    began_s = told_s = monotonic_s()

    def tell(num_requests: int, at_s: float) -> None:
        nonlocal told_s
        now_s = monotonic_s()
        if now_s - told_s >= every_s:
            told_s = now_s
            rate = num_requests / max(now_s - began_s, 1e-9)
            typer.echo(
                f"{name}: {num_requests:,} requests, {at_s / 3600:.1f} h of the trace, "
                f"{rate:,.0f} requests a second",
                err=True,
            )

    return tell


def show(outcomes: Sequence[Outcome], service: ServiceModel, *, as_json: bool, acts: bool) -> None:
    """JSON for programs, or the policies side by side."""
    if as_json:
        told = {"service": service, "outcomes": outcomes}
        typer.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
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
    """Every scenario, and what it is like."""
    width = max(len(it) for it in SCENARIOS)
    for it in SCENARIOS.values():
        typer.echo(f"{it.name:{width}}  {it.about}")


def measured(aim: str, home: Path | None, path: Path | None) -> None:
    """Measure a running component and write the calibration."""
    endpoint, _, component = aim.partition("/")
    if not endpoint or path is None:
        raise TerminalError(
            "--calibrate takes ENDPOINT/COMPONENT (ENDPOINT alone for a model), and --service FILE "
            "says where to write"
        )
    found = calibrate(endpoint, component or None, home, lambda line: typer.echo(line, err=True))
    save_service(found, path)
    typer.echo(f"written to {path}")
