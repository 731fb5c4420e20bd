"""Options of `hostelry replay` with their help texts."""

from pathlib import Path
from typing import Annotated

import typer

from hostelry.domain.at_zero import AtZero
from hostelry.domain.component import PlacementStrategy
from hostelry.domain.endpoint_config import RoutingStrategy

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
