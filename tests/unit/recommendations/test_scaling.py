"""Scaling policies from measured results."""

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.recommendations.jobs import METRICS

from hostelry.recommendations.scaling import ScalingAdvice, advise_scaling


def advice(target: int, least: int | None = None, most: int | None = None) -> ScalingAdvice:
    return ScalingAdvice(invocations_per_instance=target, min_capacity=least, max_capacity=most)


@cases(
    "cpu_percent, num_cpus, target_percent, traffic, expected",
    case("half of the CPUs that were all busy", 200.0, 2, 50, (None, None), advice(300)),
    case("half of the CPUs that were 80 % busy", 160.0, 2, 50, (None, None), advice(375)),
    case("no more than was measured", 50.0, 2, 50, (None, None), advice(600)),
    case("CPUs that were not measured", None, 2, 25, (None, None), advice(150)),
    case("an endpoint of unknown CPUs", 200.0, None, 50, (None, None), advice(300)),
    case("more busy CPUs than there are", 250.0, 2, 50, (None, None), advice(300)),
    case("instances for the traffic", 200.0, 2, 50, (301, 3000), advice(300, 2, 10)),
    case("at least one instance", 200.0, 2, 50, (0, 10), advice(300, 1, 1)),
)
def test_the_advice(
    cpu_percent: float | None,
    num_cpus: float | None,
    target_percent: int,
    traffic: tuple[int | None, int | None],
    expected: ScalingAdvice,
) -> None:
    metrics = replace(METRICS, cpu_percent=cpu_percent)
    assert advise_scaling(metrics, num_cpus, target_percent, *traffic) == expected


def test_a_slow_model_gets_one_invocation() -> None:
    metrics = replace(METRICS, invocations_per_minute=1.2)
    assert advise_scaling(metrics, None, 50, None, None).invocations_per_instance == 1
