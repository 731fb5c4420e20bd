import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.base.errors import ServiceError
from hostelry.domain.endpoint_config import (
    EndpointConfig,
    InstancePool,
    ManagedInstanceScaling,
    Variant,
)
from hostelry.domain.model import Container
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Requirements, Shape
from hostelry.domain.status import delete_deadline, start_deadline
from hostelry.domain.validation import (
    MAX_ENVIRONMENT_BYTES,
    check_environment,
    check_instance_count,
    check_requirements,
    check_variants,
    possible_instance_count,
)

GIB = 1024**3
SHAPE = Shape(cpus=8, memory_bytes=32 * GIB, accelerators=2)
FITS = Requirements(min_memory_bytes=GIB, cpus=2, accelerators=1)
OF_MODEL = Variant(name="a", model_name="m", instance_type="ml.m5.xlarge", initial_instance_count=1)
FOR_COMPONENTS = replace(OF_MODEL, model_name=None)
SCALED = ManagedInstanceScaling(enabled=True, min_instances=1, max_instances=2)


def refusal(error: ServiceError) -> str:
    assert (error.code, error.http_status) == ("ValidationException", 400)
    return error.message


@cases(
    "variants",
    case("one model", [OF_MODEL]),
    case("two models", [OF_MODEL, replace(OF_MODEL, name="b")]),
    case("for components", [FOR_COMPONENTS]),
    case("with managed scaling", [replace(FOR_COMPONENTS, scaling=SCALED)]),
    case(
        "bounds that are switched off bind nothing",
        [replace(FOR_COMPONENTS, initial_instance_count=5, scaling=replace(SCALED, enabled=False))],
    ),
)
def test_variants_that_make_an_endpoint_pass(variants: list[Variant]) -> None:
    check_variants(variants, has_execution_role=True)


@cases(
    "variants, role, text",
    case("one name twice", [OF_MODEL, OF_MODEL], True, '"a" was given 2 times'),
    case(
        "with and without a model",
        [OF_MODEL, replace(FOR_COMPONENTS, name="b")],
        True,
        '"b" has no ModelName while others have one',
    ),
    case(
        "two variants for components",
        [FOR_COMPONENTS, replace(FOR_COMPONENTS, name="b")],
        True,
        "exactly one production variant; 2",
    ),
    case("no role for components", [FOR_COMPONENTS], False, "ExecutionRoleArn is required"),
    case(
        "managed scaling of a model",
        [replace(OF_MODEL, scaling=SCALED)],
        True,
        "ManagedInstanceScaling is only supported for inference component endpoints.",
    ),
    case(
        "bounds that contradict",
        [replace(FOR_COMPONENTS, scaling=replace(SCALED, min_instances=3))],
        True,
        "MinInstanceCount 3 is greater than MaxInstanceCount 2",
    ),
    case(
        "down to none with managed scaling off",
        [replace(FOR_COMPONENTS, scaling=replace(SCALED, enabled=False, min_instances=0))],
        True,
        "MinInstanceCount 0 needs Status ENABLED",
    ),
    case(
        "an initial count above the bounds",
        [replace(FOR_COMPONENTS, scaling=SCALED, initial_instance_count=3)],
        True,
        "InitialInstanceCount 3 of variant",
    ),
)
def test_variants_that_make_none_are_refused(
    variants: list[Variant], role: bool, text: str
) -> None:
    with pytest.raises(ServiceError) as caught:
        check_variants(variants, has_execution_role=role)
    assert text in refusal(caught.value)


def test_an_environment_is_bounded_over_all_containers() -> None:
    half = Container(image="i", environment={"A": "x" * (MAX_ENVIRONMENT_BYTES // 2 - 1)})
    check_environment([half, half])
    with pytest.raises(ServiceError) as caught:
        check_environment([half, half, Container(image="i", environment={"B": ""})])
    assert f"{MAX_ENVIRONMENT_BYTES + 1} bytes" in refusal(caught.value)


def test_an_environment_asks_for_a_known_isolation() -> None:
    check_environment([Container(image="i", environment={"HOSTELRY_ISOLATION": "user"})])
    with pytest.raises(ServiceError) as caught:
        check_environment([Container(image="i", environment={"HOSTELRY_ISOLATION": "vm"})])
    assert "HOSTELRY_ISOLATION is 'vm'. It names one of" in refusal(caught.value)


def test_an_environment_is_counted_in_bytes() -> None:
    with pytest.raises(ServiceError):
        check_environment([Container(image="i", environment={"A": "é" * (16 * 1024)})])


@cases(
    "needs, text",
    case(
        "a maximum below the minimum",
        replace(FITS, max_memory_bytes=GIB // 2),
        "MaxMemoryRequiredInMb 512 is less than MinMemoryRequiredInMb 1024",
    ),
    case(
        "half a device",
        replace(FITS, accelerators=1.5),
        "NumberOfAcceleratorDevicesRequired is 1.5; a copy owns whole accelerators, so it must"
        " be a whole number",
    ),
    case("no number of devices", replace(FITS, accelerators=float("nan")), "is nan; a copy owns"),
    case("endless devices", replace(FITS, accelerators=float("inf")), "is inf; a copy owns"),
    case(
        "too many devices",
        replace(FITS, accelerators=3),
        "NumberOfAcceleratorDevicesRequired is 3, but one ml.x instance offers 2",
    ),
    case(
        "too many CPUs",
        replace(FITS, cpus=8.25),
        "NumberOfCpuCoresRequired is 8.25, but one ml.x instance offers 8",
    ),
    case(
        "too much memory",
        replace(FITS, min_memory_bytes=33 * GIB),
        "MinMemoryRequiredInMb is 33792, but one ml.x instance offers 32768",
    ),
)
def test_requirements_that_no_instance_meets_are_refused(needs: Requirements, text: str) -> None:
    with pytest.raises(ServiceError) as caught:
        check_requirements(needs, {"ml.x": SHAPE})
    assert text in refusal(caught.value)


@cases(
    "needs",
    case("a part of it", FITS),
    case("a maximum equal to the minimum", replace(FITS, max_memory_bytes=GIB)),
    case("all of it", Requirements(min_memory_bytes=32 * GIB, cpus=8, accelerators=2)),
)
def test_requirements_that_an_empty_instance_meets_pass(needs: Requirements) -> None:
    check_requirements(needs, {"ml.x": SHAPE})


def test_requirements_need_one_instance_type_that_meets_them() -> None:
    many = replace(FITS, accelerators=3)
    small, large = SHAPE, replace(SHAPE, accelerators=4)
    check_requirements(many, {"ml.small": small, "ml.large": large})
    with pytest.raises(ServiceError) as caught:
        check_requirements(many, {"ml.small": small, "ml.none": replace(SHAPE, accelerators=0)})
    assert refusal(caught.value) == (
        "NumberOfAcceleratorDevicesRequired is 3, but one ml.small instance offers 2."
        " NumberOfAcceleratorDevicesRequired is 3, but one ml.none instance offers 0."
    )


@cases(
    "variant, count, least, text",
    case("one", OF_MODEL, 1, 1, None),
    case("none", OF_MODEL, 0, 1, "at least 1 instance is needed"),
    case("none where requests are queued", OF_MODEL, 0, 0, None),
    case(
        "one that follows copies",
        replace(FOR_COMPONENTS, scaling=SCALED),
        2,
        1,
        "ManagedInstanceScaling is ENABLED",
    ),
    case(
        "above bounds that are switched off",
        replace(FOR_COMPONENTS, scaling=replace(SCALED, enabled=False)),
        7,
        1,
        None,
    ),
)
def test_a_desired_instance_count(
    variant: Variant, count: int, least: int, text: str | None
) -> None:
    if text is None:
        check_instance_count(variant, count, least)
        return
    with pytest.raises(ServiceError) as caught:
        check_instance_count(variant, count, least)
    assert text in refusal(caught.value)


@cases(
    "scaling, count, least, possible",
    case("one at least", None, 0, 1, 1),
    case("none where requests are queued", None, 0, 0, 0),
    case("as asked", None, 5, 1, 5),
    case("the upper bound", SCALED, 5, 1, 2),
    case("the lower bound", SCALED, 0, 1, 1),
    case("none where the bounds allow it", replace(SCALED, min_instances=0), 0, 1, 0),
    case("bounds that are switched off", replace(SCALED, enabled=False), 5, 1, 5),
)
def test_the_nearest_instance_count_that_can_be(
    scaling: ManagedInstanceScaling | None, count: int, least: int, possible: int
) -> None:
    variant = replace(FOR_COMPONENTS, scaling=scaling)
    assert possible_instance_count(variant, count, least) == possible


@cases(
    "pools, text",
    case("two types", [("ml.a", None), ("ml.b", None)], None),
    case("one type twice", [("ml.a", None), ("ml.a", None)], "name ml.a 2 times"),
    case("a model where components go", [("ml.a", "m")], "ModelNameOverride"),
)
def test_instance_pools(pools: list[tuple[str, str | None]], text: str | None) -> None:
    variant = replace(
        FOR_COMPONENTS,
        pools=tuple(InstancePool(instance_type=a, priority=1, model_name=b) for a, b in pools),
    )
    if text is None:
        check_variants([variant], has_execution_role=True)
        return
    with pytest.raises(ServiceError) as caught:
        check_variants([variant], has_execution_role=True)
    assert text in refusal(caught.value)


def test_more_instances_than_any_machine_keeps_are_refused() -> None:
    with pytest.raises(ServiceError, match="at most 1000") as caught:
        check_variants([replace(OF_MODEL, initial_instance_count=1001)], has_execution_role=True)
    assert caught.value.code == "ResourceLimitExceeded"


def test_deadlines_leave_room_for_the_timeouts() -> None:
    assert start_deadline(1000.0, 60.0, 120.0) > 1000.0 + 60.0 + 120.0
    assert delete_deadline(1000.0) > 1000.0


def test_a_configuration_takes_components_when_no_variant_names_a_model() -> None:
    config = EndpointConfig(
        scope=Scope("123456789012", "us-west-2"),
        name="c",
        arn="arn",
        created_at=0.0,
        variants=(FOR_COMPONENTS,),
        given={},
    )
    assert config.takes_components
    assert not replace(config, variants=(OF_MODEL,)).takes_components


def test_an_arn_is_lower_case() -> None:
    assert Scope("123456789012", "us-west-2").arn("endpoint", "My-Endpoint") == (
        "arn:aws:sagemaker:us-west-2:123456789012:endpoint/my-endpoint"
    )
