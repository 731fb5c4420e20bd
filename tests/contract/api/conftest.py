"""Operations in process, held to botocore's service models on both sides."""

import re
from collections.abc import Callable
from typing import Any

import botocore.session
import pytest
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from hostelry.api.context import Context
from hostelry.api.operations import perform
from hostelry.base.clock import ManualClock
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state

SHAPES = {
    "ml.g5.12xlarge": Shape(cpus=48, memory_bytes=192 * 1024**3, accelerators=4),
    "ml.m5.xlarge": Shape(cpus=4, memory_bytes=16 * 1024**3),
}
ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"


@pytest.fixture
def scope() -> Scope:
    return Scope("123456789012", "us-west-2")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def state() -> State:
    return open_state(MemoryStore())


@pytest.fixture(scope="session")
def service_models() -> Callable[[str], ServiceModel]:
    session = botocore.session.get_session()
    models: dict[str, ServiceModel] = {}

    def model_of(service: str) -> ServiceModel:
        if service not in models:
            models[service] = session.get_service_model(service)
        return models[service]

    return model_of


@pytest.fixture
def call_as(
    state: State, clock: ManualClock, service_models: Callable[[str], ServiceModel]
) -> Callable[..., dict[str, Any]]:
    """`call_as(scope, operation, **params)`: the result, after botocore has accepted both sides."""

    def call_as(
        scope: Scope, operation: str, service: str = "sagemaker", /, **params: Any
    ) -> dict[str, Any]:
        model = service_models(service).operation_model(operation)
        check(model.input_shape, params)
        context = Context(
            scope=scope,
            state=state,
            now=clock.now(),
            shape_of=lambda name: SHAPES.get(name, Shape(cpus=16, memory_bytes=64 * 1024**3)),
            role_arn=ROLE,
            role_name="HostelryExecutionRole",
        )
        result = perform(context, service, operation, params)
        if model.output_shape is None:
            assert result == {}
        else:
            check(model.output_shape, result)
        return result

    return call_as


@pytest.fixture
def call(call_as: Callable[..., dict[str, Any]], scope: Scope) -> Callable[..., dict[str, Any]]:
    """`call(operation, **params)` in the one scope most tests need."""
    return lambda operation, *service, **params: call_as(scope, operation, *service, **params)


def check(shape: Any, value: Any) -> None:
    """Whether botocore would send or return `value`: types, required members, ranges, no others."""
    report = ParamValidator().validate(value, shape)
    assert not report.has_errors(), report.generate_report()
    check_members(shape, value, shape.name)


def check_members(shape: Any, value: Any, path: str) -> None:
    """What botocore does not look at: members the shape lacks, patterns, enums, lengths."""
    if shape.type_name == "structure":
        assert not set(value) - set(shape.members), f"{path}: {set(value) - set(shape.members)}"
        for name, member in value.items():
            check_members(shape.members[name], member, f"{path}.{name}")
    elif shape.type_name == "list":
        for member in value:
            check_members(shape.member, member, f"{path}[]")
    elif shape.type_name == "string":
        check_string(shape, value, path)


def check_string(shape: Any, value: str, path: str) -> None:
    enum = getattr(shape, "enum", None)
    assert not enum or value in enum, f"{path}: {value}"
    pattern = shape.metadata.get("pattern")
    if pattern and r"\p{" not in pattern:
        assert re.fullmatch(pattern, value), f"{path}: {value!r} does not match {pattern}"
    assert len(value) <= shape.metadata.get("max", 10**9), path
