"""Options of `hostelry replay` with their help texts."""

from pathlib import Path
from typing import Annotated

import typer

from hostelry.domain.at_zero import AtZero
from hostelry.domain.component import PlacementStrategy
from hostelry.domain.endpoint_config import RoutingStrategy

TraceOption = Annotated[
    Path | None, typer.Option(help="A CSV file of arrivals; see docs/replay.md.")
]
ScenarioOption = Annotated[str | None, typer.Option(help="A named synthetic load, one of --list.")]
PolicyOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="A policy file; repeat it to compare several."),
]
SeedOption = Annotated[
    int | None,
    typer.Option(min=0, help="Seed of the scenario and of all random draws. Default: a fixed one."),
]
ActsOption = Annotated[bool, typer.Option("--acts", help="Print each act of scaling.")]
ListOption = Annotated[bool, typer.Option("--list", help="Print the scenarios and end.")]
WriteOption = Annotated[
    Path | None,
    typer.Option("--write-trace", help="Write the trace as CSV and end.", show_default=False),
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, help="Read no more rows than this of --trace.")
]
ServiceOption = Annotated[
    Path | None,
    typer.Option(help="A calibration. Default: SmolLM2-135M on two cores.", show_default=False),
]
CalibrateOption = Annotated[
    str | None,
    typer.Option(
        "--calibrate",
        metavar="ENDPOINT/COMPONENT",
        help="Measure a running component with real requests, write --service FILE, and end.",
        show_default=False,
    ),
]
InstanceTypeOption = Annotated[str, typer.Option(help="Type of all instances.")]
MinInstancesOption = Annotated[int, typer.Option(help="Instances at least.")]
MaxInstancesOption = Annotated[int, typer.Option(help="Instances at most.")]
CpusOption = Annotated[float, typer.Option(help="CPUs that a copy reserves.")]
MemoryOption = Annotated[int, typer.Option(help="MiB that a copy reserves.")]
AcceleratorsOption = Annotated[int, typer.Option(help="Accelerators of a copy.")]
InitialOption = Annotated[int, typer.Option(help="Copies at the beginning.")]
PlacementOption = Annotated[PlacementStrategy, typer.Option(help="Placement strategy of copies.")]
RoutingOption = Annotated[RoutingStrategy, typer.Option(help="Routing strategy of requests.")]
AtZeroOption = Annotated[
    AtZero, typer.Option(help="Without a copy: requests wait for one, or fail as on AWS.")
]
HoldOption = Annotated[
    float, typer.Option("--hold", help="Seconds that a request waits for a copy.")
]
MaxHeldOption = Annotated[int, typer.Option(help="Requests that may wait for a model.")]
IdleReleaseOption = Annotated[
    float, typer.Option("--idle-release", help="Seconds that an empty instance is kept.")
]
SpreadOption = Annotated[float, typer.Option(help="Deviation of the logarithm of start-up times.")]
PaceOption = Annotated[float, typer.Option(help="Divide cooldowns and low alarms by this.")]
