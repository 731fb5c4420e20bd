"""`hostelry replay`: a trace against the real policies, placement and routing, in virtual time."""

from hostelry.cli import replay_options as given
from hostelry.cli.home_option import HomeOption, JsonOption
from hostelry.domain.at_zero import AtZero
from hostelry.domain.component import PlacementStrategy
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.fleet.shapes import shape_of


def replay(  # noqa: PLR0913 - one parameter an option of the command
    trace: given.TraceOption = None,
    scenario: given.ScenarioOption = None,
    policy: given.PolicyOption = None,
    seed: given.SeedOption = None,
    as_json: JsonOption = False,
    acts: given.ActsOption = False,
    list_scenarios: given.ListOption = False,
    write_to: given.WriteOption = None,
    limit: given.LimitOption = None,
    service: given.ServiceOption = None,
    calibrate_on: given.CalibrateOption = None,
    home: HomeOption = None,
    instance_type: given.InstanceTypeOption = "ml.m5.2xlarge",
    min_instances: given.MinInstancesOption = 0,
    max_instances: given.MaxInstancesOption = 100,
    copy_cpus: given.CpusOption = 2.0,
    copy_memory_mib: given.MemoryOption = 1024,
    copy_accelerators: given.AcceleratorsOption = 0,
    initial_copies: given.InitialOption = 1,
    placement: given.PlacementOption = PlacementStrategy.SPREAD,
    routing: given.RoutingOption = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
    at_zero: given.AtZeroOption = AtZero.HOLD,
    hold_s: given.HoldOption = 60.0,
    max_held: given.MaxHeldOption = 1024,
    idle_release_s: given.IdleReleaseOption = 300.0,
    start_spread: given.SpreadOption = 0.15,
    pace: given.PaceOption = 1.0,
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
    # Imported here, since no other command needs the simulator and numpy.
    from hostelry.cli import replay_run as at_work
    from hostelry.sim.deployment import SimulatedDeployment

    if list_scenarios:
        at_work.show_scenarios()
        return
    if calibrate_on is not None:
        at_work.measured(calibrate_on, home, service)
        return
    seed = at_work.chosen_seed(seed)
    fresh = at_work.chosen_trace(trace, scenario, seed, limit)
    if write_to is not None:
        at_work.write(fresh(), write_to)
        return
    with at_work.possible():
        deployment = SimulatedDeployment(
            instance_type=instance_type,
            shape=shape_of(instance_type),
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
