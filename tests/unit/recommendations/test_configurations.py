"""The instance types and environments that a recommendations job measures."""

from tests.cases import case, cases

from hostelry.domain.shape import Shape
from hostelry.fleet.shapes import instance_types
from hostelry.recommendations.configurations import (
    Configuration,
    ConfigurationRange,
    choose_instance_types,
    choose_llm_types,
    expand_ranges,
)

GIB = 1024**3
BOTH = ConfigurationRange(
    instance_type="ml.m5.large", values=(("THREADS", ("1", "2")), ("BATCH", ("8", "16")))
)
PLAIN = ConfigurationRange(instance_type="ml.c5.large")


def made(instance_type: str, **environment: str) -> Configuration:
    return Configuration(instance_type=instance_type, environment=environment)


@cases(
    "machine, expected",
    case(
        "a machine of 8 GiB that reports a little less",
        Shape(cpus=2, memory_bytes=int(7.6 * GIB)),
        ("ml.c5.large", "ml.m5.large"),
    ),
    case(
        "a large machine has types from the smallest to the largest that fits",
        Shape(cpus=16, memory_bytes=64 * GIB),
        ("ml.c5.large", "ml.c5.xlarge", "ml.m5.2xlarge", "ml.m5.4xlarge"),
    ),
    case(
        "a machine that is smaller than every type",
        Shape(cpus=1, memory_bytes=GIB),
        ("ml.c5.large",),
    ),
    case(
        "a machine with one accelerator",
        Shape(cpus=16, memory_bytes=128 * GIB, accelerators=1),
        ("ml.c5.large", "ml.r5.4xlarge", "ml.g5.xlarge", "ml.g5.4xlarge"),
    ),
)
def test_a_few_types_that_fit_the_machine_are_chosen(
    machine: Shape, expected: tuple[str, ...]
) -> None:
    known = [it for name, it in instance_types().items() if not name.endswith(".medium")]
    assert choose_instance_types(known, machine) == expected


@cases(
    "machine, expected",
    case(
        "the largest types of a machine without accelerators",
        Shape(cpus=16, memory_bytes=64 * GIB),
        ("ml.m5.2xlarge", "ml.m5.4xlarge"),
    ),
    case(
        "types with accelerators, if there are any",
        Shape(cpus=16, memory_bytes=128 * GIB, accelerators=1),
        ("ml.g5.xlarge", "ml.g5.4xlarge"),
    ),
)
def test_a_few_types_are_chosen_for_an_llm(machine: Shape, expected: tuple[str, ...]) -> None:
    known = [it for name, it in instance_types().items() if not name.endswith(".medium")]
    assert choose_llm_types(known, machine, 2) == expected


@cases(
    "ranges, most, expected",
    case("no variables", (PLAIN,), 10, (made("ml.c5.large"),)),
    case(
        "every combination of variables",
        (BOTH,),
        10,
        (
            made("ml.m5.large", THREADS="1", BATCH="8"),
            made("ml.m5.large", THREADS="1", BATCH="16"),
            made("ml.m5.large", THREADS="2", BATCH="8"),
            made("ml.m5.large", THREADS="2", BATCH="16"),
        ),
    ),
    case(
        "each range has its turn before any has its second",
        (BOTH, PLAIN),
        3,
        (
            made("ml.m5.large", THREADS="1", BATCH="8"),
            made("ml.c5.large"),
            made("ml.m5.large", THREADS="1", BATCH="16"),
        ),
    ),
    case("the same configuration twice", (PLAIN, PLAIN), 10, (made("ml.c5.large"),)),
    case("no range", (), 10, ()),
)
def test_ranges_become_configurations(
    ranges: tuple[ConfigurationRange, ...], most: int, expected: tuple[Configuration, ...]
) -> None:
    assert expand_ranges(ranges, most) == expected


def test_the_most_combinations_that_a_request_can_have_are_not_all_built() -> None:
    values = tuple((f"V{number}", ("a", "b", "c")) for number in range(5))
    ranges = [
        ConfigurationRange(instance_type=f"ml.m5.{number}", values=values) for number in range(10)
    ]
    assert len(expand_ranges(ranges, 100)) == 100
