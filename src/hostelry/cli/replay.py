"""`hostelry replay`: run a trace against real policies, placement and routing in virtual time."""

from pathlib import Path
from typing import Annotated

import typer

from hostelry.cli.home_option import HomeOption, JsonOption
from hostelry.domain.at_zero import AtZero
from hostelry.domain.component import PlacementStrategy
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.fleet.shapes import get_shape

TraceOption = Annotated[
    Path | None, typer.Option(help="CSV file of arrivals (see docs/replay.md).")
]
ScenarioOption = Annotated[str | None, typer.Option(help="Name of a synthetic load (see --list).")]
PolicyOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Policy file. Repeat the option to compare several."),
]
SeedOption = Annotated[
    int | None,
    typer.Option(min=0, help="Seed of the scenario and of all random draws. Default: a fixed one."),
]
ActsOption = Annotated[bool, typer.Option("--acts", help="Print each scaling action.")]
ListOption = Annotated[bool, typer.Option("--list", help="Print the scenarios and exit.")]
WriteOption = Annotated[
    Path | None,
    typer.Option(
        "--write-trace", help="Write the trace to this file as CSV and exit.", show_default=False
    ),
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of rows to read from --trace.")
]
ServiceOption = Annotated[
    Path | None,
    typer.Option(help="Calibration file. Default: SmolLM2-135M on two cores.", show_default=False),
]
CalibrateOption = Annotated[
    str | None,
    typer.Option(
        "--calibrate",
        metavar="ENDPOINT/COMPONENT",
        help=("Measure this running component with real requests, write --service FILE and exit."),
        show_default=False,
    ),
]
InstanceTypeOption = Annotated[str, typer.Option(help="Type of every instance.")]
MinInstancesOption = Annotated[int, typer.Option(help="Minimum number of instances.")]
MaxInstancesOption = Annotated[int, typer.Option(help="Maximum number of instances.")]
CpusOption = Annotated[float, typer.Option(help="CPUs reserved per copy.")]
MemoryOption = Annotated[int, typer.Option(help="Memory reserved per copy, in MiB.")]
AcceleratorsOption = Annotated[int, typer.Option(help="Accelerators reserved per copy.")]
InitialOption = Annotated[int, typer.Option(help="Number of copies at the start.")]
PlacementOption = Annotated[PlacementStrategy, typer.Option(help="Placement strategy of copies.")]
RoutingOption = Annotated[RoutingStrategy, typer.Option(help="Routing strategy of requests.")]
AtZeroOption = Annotated[
    AtZero,
    typer.Option(
        help=("Requests while there is no copy: hold (they wait) or compat (they fail as on AWS).")
    ),
]
HoldOption = Annotated[
    float, typer.Option("--hold", help="Maximum number of seconds that a request waits for a copy.")
]
MaxHeldOption = Annotated[
    int, typer.Option(help="Maximum number of requests that wait for a model.")
]
IdleReleaseOption = Annotated[
    float, typer.Option("--idle-release", help="Seconds before an empty instance is removed.")
]
SpreadOption = Annotated[
    float, typer.Option(help="Standard deviation of the logarithm of start-up times.")
]
PaceOption = Annotated[float, typer.Option(help="Divide cooldowns and low alarms by this.")]


def replay(  # noqa: PLR0913 - a command's options
    trace: TraceOption = None,
    scenario: ScenarioOption = None,
    policy: PolicyOption = None,
    seed: SeedOption = None,
    as_json: JsonOption = False,
    acts: ActsOption = False,
    list_scenarios: ListOption = False,
    write_to: WriteOption = None,
    limit: LimitOption = None,
    service: ServiceOption = None,
    calibrate_on: CalibrateOption = None,
    home: HomeOption = None,
    instance_type: InstanceTypeOption = "ml.m5.2xlarge",
    min_instances: MinInstancesOption = 0,
    max_instances: MaxInstancesOption = 100,
    copy_cpus: CpusOption = 2.0,
    copy_memory_mib: MemoryOption = 1024,
    copy_accelerators: AcceleratorsOption = 0,
    initial_copies: InitialOption = 1,
    placement: PlacementOption = PlacementStrategy.SPREAD,
    routing: RoutingOption = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
    at_zero: AtZeroOption = AtZero.HOLD,
    hold_s: HoldOption = 60.0,
    max_held: MaxHeldOption = 1024,
    idle_release_s: IdleReleaseOption = 300.0,
    start_spread: SpreadOption = 0.15,
    pace: PaceOption = 1.0,
) -> None:
    """Replay a trace against scaling policies, and report latency, cost and unneeded actions.

    The platform's own code (alarms, policies, placement, routing) decides on a virtual clock.
    Durations of requests and starts come from a calibration. The same seed gives the same result,
    bit for bit, and the digest of the result is printed.

    Example: hostelry replay --scenario step-4x --policy examples/policies/responsive.json --acts

    Example: hostelry replay --scenario step-4x --policy tracking.json --policy responsive.json

    Example: hostelry replay --trace AzureLLMInferenceTrace_conv.csv --policy mine.json --json

    Example: hostelry replay --scenario chat-steady --write-trace chat.csv

    Example: hostelry replay --calibrate chat/assistant --service assistant.json
    """
    # Imported here, because no other command needs the simulator and numpy.
    from hostelry.cli import replay_run as at_work
    from hostelry.sim.fleet import SimulatedDeployment

    if list_scenarios:
        at_work.show_scenarios()
        return
    if calibrate_on is not None:
        at_work.write_calibration(calibrate_on, home, service)
        return
    seed = at_work.chosen_seed(seed)
    fresh = at_work.chosen_trace(trace, scenario, seed, limit)
    if write_to is not None:
        at_work.write(fresh(), write_to)
        return
    with at_work.possible():
        deployment = SimulatedDeployment(
            instance_type=instance_type,
            shape=get_shape(instance_type),
            requirements=at_work.requirements(copy_cpus, copy_memory_mib, copy_accelerators),
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
    against = at_work.Against(deployment, at_work.service_model(service), seed)
    at_work.compare(fresh, policy, against, as_json=as_json, acts=acts)
