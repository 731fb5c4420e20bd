"""Java's patterns, and the assumptions about the models that the walkers rest on."""

from typing import Any

import pytest
from botocore.loaders import Loader
from tests.cases import case, cases

from hostelry.aws.constraints import compile_pattern
from hostelry.aws.models import (
    CONTROL_SERVICES,
    TARGETS,
    VERSIONS,
    modelled_errors,
    service_model,
    service_operations,
    signing_name,
)


def plain(value: Any) -> Any:
    """`value` without the texts in members named documentation."""
    if isinstance(value, dict):
        kept = {name: plain(it) for name, it in value.items()}
        return {
            name: it
            for name, it in kept.items()
            if name != "documentation" or not isinstance(it, str)
        }
    return [plain(it) for it in value] if isinstance(value, list) else value


@pytest.mark.parametrize("service", [*CONTROL_SERVICES, "sagemaker-runtime"])
def test_a_model_is_botocores_without_documentation(service: str) -> None:
    own = Loader(extra_search_paths=[Loader.BUILTIN_DATA_PATH], include_default_search_paths=False)
    expected, read = plain(own.load_service_model(service, "service-2")), service_model(service)
    description = read._service_description
    assert read.metadata == expected["metadata"]
    assert dict(description["operations"]) == expected["operations"]
    assert dict(description["shapes"]) == expected["shapes"]
    errors = {shape.name for shape in read.error_shapes}
    assert {shape.name for shape in modelled_errors(service)} == errors


@pytest.mark.parametrize("service", [*CONTROL_SERVICES, "sagemaker-runtime"])
def test_every_pattern_of_the_models_can_be_read(service: str) -> None:
    model = service_model(service)
    shapes = [model.shape_for(name) for name in model.shape_names]
    patterns = {shape.metadata["pattern"] for shape in shapes if "pattern" in shape.metadata}
    assert patterns or service == "sqs"
    for pattern in patterns:
        compile_pattern(pattern)


# jsonvalue is on one member of CreateFlowDefinition, event on streams of logs. None is served.
LEFT_OUT = {"resultWrapper", "box", "jsonvalue", "event", "eventstream"}


@pytest.mark.parametrize("service", CONTROL_SERVICES)
def test_the_models_use_no_trait_that_the_walkers_leave_out(service: str) -> None:
    model = service_model(service)
    for name in model.shape_names:
        shape = model.shape_for(name)
        inner: list[Any] = {
            "structure": lambda shape=shape: list(shape.members.values()),
            "list": lambda shape=shape: [shape.member],
            "map": lambda shape=shape: [shape.key, shape.value],
        }.get(shape.type_name, list)()
        for part in (shape, *inner):
            known = LEFT_OUT | ({"name"} if shape.type_name == "map" else set())
            if "ec2" in model.metadata["protocols"]:
                known |= {"name", "queryName"}
            if "rest-json" in model.metadata["protocols"]:
                assert part.serialization.get("location", "uri") in ("uri", "querystring")
                known |= {"location", "name"}
            if "query" not in model.metadata["protocols"]:
                known |= {"flattened"}  # JSON knows no other list
            traits = part.serialization.keys() - known
            assert not traits, f"{name}.{part.name} has {traits}"
        assert not shape.metadata.get("document")


@cases(
    "pattern, fits, fits_not",
    case("Unicode categories", r"[\p{L}\p{Z}\p{N}_-]*", "été 5\u2003_", "a!"),
    case("a property outside a class is ASCII", r"\p{Print}+", "a ~", "\u00e9"),
    case("Java's anchors", r"\A\S[\p{Print}]*\z", "x y", " x"),
    case("pairs", r"[\u0020-\uD7FF\uD800\uDC00-\uDBFF\uDFFF]*", "a\U0001f98a", "\x01"),
    case("an escaped bracket does not end a class", r"[\]a]+", "]a", "b"),
    case("word characters are ASCII", r"\w+", "az_9", "é"),
    case(
        "a pattern of exponential time, in linear time",
        r"https://([.\-_a-zA-Z0-9]+/?){3,1016}",
        "https://a.b/c/",
        "https://" + "a" * 1000 + "//",
    ),
    case(
        "another pattern of exponential time",
        r"[a-z0-9]([-a-z0-9]*[a-z0-9]){0,39}?",
        "a-b",
        "a" * 1000 + "-",
    ),
    case("a repeated anchor", r"(a*)${1,128}", "aa", "b"),
    case("a line's end is the text's end", r"^(NEW)$|^[a-c]+$", "abc", "abc\n"),
)
def test_a_pattern_means_what_it_means_in_java(pattern: str, fits: str, fits_not: str) -> None:
    assert compile_pattern(pattern).fullmatch(fits)
    assert not compile_pattern(pattern).fullmatch(fits_not)


def test_the_tables_of_services_agree_with_the_models() -> None:
    metadata = {service: service_model(service).metadata for service in CONTROL_SERVICES}
    prefixes = {it.get("targetPrefix"): service for service, it in metadata.items()}
    prefixes.pop(None)
    versions = {
        it["apiVersion"]: service
        for service, it in metadata.items()
        if {"query", "ec2"} & set(it["protocols"])
    }
    assert dict(TARGETS) == prefixes
    assert dict(VERSIONS) == versions
    for service, it in metadata.items():
        assert signing_name(service) == (it.get("signingName") or it["endpointPrefix"]), service


def test_which_operations_are_known() -> None:
    assert "CreateInferenceComponent" in service_operations("sagemaker")
    assert "GetCallerIdentity" in service_operations("sts")
