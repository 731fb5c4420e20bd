"""Copies of a deployed model with other settings: the calls that create them, and their removal."""

import fcntl
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.load.model_copy import (
    MARK,
    TAG,
    ModelCopies,
    describe_model,
    home_tag,
    left_copies,
    list_calls,
    model_copies,
    remove_copy,
    wait_for_endpoint,
)
from hostelry.cli.named import NAME_OF, NamedModel, NameKind
from hostelry.home.home import Home, UpConfig, new_credentials

CONTAINER = {"Image": "lmi", "ModelDataUrl": "s3://b/m.tar.gz", "Environment": {"A": "1", "B": "2"}}
VARIANT = {"VariantName": "v", "InstanceType": "ml.m5.large", "InitialInstanceCount": 2}
CONFIG = UpConfig(control_port=1)
WINE = NamedModel(kind=NameKind.ENDPOINT, endpoint="wine")
LLAMA = NamedModel(kind=NameKind.COMPONENT, endpoint="shop", component="llama")
SPECIFICATION = {"ModelName": "m", "ComputeResourceRequirements": {"NumberOfCpuCoresRequired": 1}}
OWN: Mapping[tuple[str, str], dict[str, Any]] = {
    ("model", "m"): {"PrimaryContainer": CONTAINER, "ExecutionRoleArn": "arn:role"},
    ("endpoint_config", "wine-1"): {"ProductionVariants": [{**VARIANT, "ModelName": "m"}]},
    ("endpoint", "wine"): {"EndpointConfigName": "wine-1"},
    ("endpoint_config", "shop-1"): {
        "ProductionVariants": [VARIANT], "ExecutionRoleArn": "arn:role"},
    ("endpoint", "shop"): {"EndpointConfigName": "shop-1"},
    ("inference_component", "llama"): {"VariantName": "v", "Specification": SPECIFICATION},
}  # fmt: skip


def no_variables(endpoint: str) -> frozenset[str]:
    """Every variable is passed on."""
    del endpoint
    return frozenset()


class FakeSagemaker:
    """Keeps created resources, which are in service at once. `fails` is a call that raises."""

    def __init__(self, fails: str = "", error: BaseException | None = None) -> None:
        self.resources = {key: dict(value) for key, value in OWN.items()}
        self._fails, self._error = fails, error

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb, _, kind = name.partition("_")
        return partial(getattr(self, f"_{verb}"), kind)

    def get_paginator(self, name: str) -> "FakePages":
        """The pages of a list."""
        return FakePages(self, name.removeprefix("list_").removesuffix("s"))

    def _create(self, kind: str, **params: Any) -> None:
        if f"create_{kind}" == self._fails and self._error is not None:
            raise self._error
        self.resources[kind, params[NAME_OF[kind]]] = params

    def _describe(self, kind: str, **params: str) -> dict[str, Any]:
        found = self.resources.get((kind, params[NAME_OF[kind]]))
        if found is None:
            raise ClientError({"Error": {"Message": "Could not find it"}}, "Describe")
        copies = found.get("RuntimeConfig", {}).get("CopyCount", 1)
        return {
            "EndpointStatus": "InService",
            "InferenceComponentStatus": "InService",
            **found,
            "RuntimeConfig": {"CurrentCopyCount": copies, "DesiredCopyCount": copies},
        }

    def _delete(self, kind: str, **params: str) -> None:
        self.resources.pop((kind, params[NAME_OF[kind]]))

    def _list(self, kind: str, ResourceArn: str) -> dict[str, Any]:
        assert kind == "tags"
        key = next(it for it in self.resources if "/".join(it) == ResourceArn)
        return {"Tags": self.resources[key].get("Tags", [])}


class FakePages:
    """The only page of a list of resources."""

    def __init__(self, sagemaker: FakeSagemaker, kind: str) -> None:
        self._sagemaker, self._kind = sagemaker, kind

    def paginate(self, NameContains: str) -> Iterator[dict[str, Any]]:
        """The resources whose names contain a text."""
        word = "".join(it.capitalize() for it in self._kind.split("_"))
        names = [name for kind, name in self._sagemaker.resources if kind == self._kind]
        rows = [{f"{word}Name": it, f"{word}Arn": f"{self._kind}/{it}"} for it in names]
        yield {f"{word}s": [it for it in rows if NameContains in it[f"{word}Name"]]}


def calls(named: NamedModel, **values: Any) -> dict[str, dict[str, Any]]:
    """The calls for a copy, by their operation. Names have underscores instead of dashes."""
    given = {name.replace("_", "-"): value for name, value in values.items()}
    return dict(list_calls(describe_model(FakeSagemaker(), named), "copy", "home", given))


def test_a_variable_replaces_one_variable_of_the_container() -> None:
    given = {"env:B": "3", "env:C": "4"}
    made = dict(list_calls(describe_model(FakeSagemaker(), LLAMA), "copy", "home", given))
    assert list(made) == [
        "create_model", "create_endpoint_config", "create_endpoint", "create_inference_component",
    ]  # fmt: skip
    assert made["create_model"] == {
        "ModelName": "copy",
        "PrimaryContainer": {**CONTAINER, "Environment": {"A": "1", "B": "3", "C": "4"}},
        "ExecutionRoleArn": "arn:role",
        "Tags": [{"Key": TAG, "Value": "home"}],
    }
    (variant,) = made["create_endpoint_config"]["ProductionVariants"]
    assert variant["InitialInstanceCount"] == 1
    assert variant["InstanceType"] == "ml.m5.large"
    assert made["create_inference_component"] == {
        "InferenceComponentName": "copy",
        "EndpointName": "copy",
        "VariantName": "v",
        "Specification": {**SPECIFICATION, "ModelName": "copy"},
        "RuntimeConfig": {"CopyCount": 1},
    }
    assert CONTAINER["Environment"] == {"A": "1", "B": "2"}


def test_the_size_of_copies_is_the_component_s() -> None:
    made = calls(LLAMA, copies=3, cpus=0.5, memory_mb=512, instance_type="ml.m5.xlarge")
    component = made["create_inference_component"]
    assert component["RuntimeConfig"] == {"CopyCount": 3}
    assert component["Specification"]["ComputeResourceRequirements"] == {
        "NumberOfCpuCoresRequired": 0.5, "MinMemoryRequiredInMb": 512}  # fmt: skip
    (variant,) = made["create_endpoint_config"]["ProductionVariants"]
    assert variant["InstanceType"] == "ml.m5.xlarge"
    assert variant["ManagedInstanceScaling"]["MaxInstanceCount"] == 3


def test_copies_of_an_endpoint_are_instances() -> None:
    made = calls(WINE, copies=3)
    assert "create_inference_component" not in made
    (variant,) = made["create_endpoint_config"]["ProductionVariants"]
    assert (variant["InitialInstanceCount"], variant["ModelName"]) == (3, "copy")
    (same,) = calls(WINE)["create_endpoint_config"]["ProductionVariants"]
    assert same == {**VARIANT, "ModelName": "copy"}


def test_a_component_keeps_its_own_container() -> None:
    sagemaker = FakeSagemaker()
    container = {
        "DeployedImage": {"SpecifiedImage": "lmi", "ResolvedImage": "lmi@1"},
        "ArtifactUrl": "s3://b/m.tar.gz", "Environment": {"A": "1"}}  # fmt: skip
    component = {"VariantName": "v", "Specification": {"Container": container}}
    sagemaker.resources["inference_component", "llama"] = component
    made = dict(list_calls(describe_model(sagemaker, LLAMA), "copy", "home", {"env:A": "2"}))
    assert "create_model" not in made
    assert made["create_inference_component"]["Specification"]["Container"] == {
        "Image": "lmi", "ArtifactUrl": "s3://b/m.tar.gz", "Environment": {"A": "2"}}  # fmt: skip
    copies = ModelCopies(sagemaker, CONFIG, LLAMA, "home", no_variables)
    copies.deploy({"env:A": "2"})
    assert len(left_copies(sagemaker, "home")) == 1
    copies.remove()
    assert left_copies(sagemaker, "home") == []


SEVERAL = {"ProductionVariants": [{**VARIANT, "ModelName": "m"}, {**VARIANT, "VariantName": "w"}]}
QUEUED = {"ProductionVariants": [VARIANT], "AsyncInferenceConfig": {"OutputConfig": {}}}


@cases(
    "named, key, resource, text",
    case("an adapter", NamedModel(kind=NameKind.ADAPTER, endpoint="shop", component="es", base="b"),
        ("model", "m"), {}, "es is an adapter, and a sweep deploys whole models: name b"),
    case("several variants", WINE, ("endpoint_config", "wine-1"), SEVERAL, "several variants"),
    case("an asynchronous endpoint", WINE, ("endpoint_config", "wine-1"), QUEUED, "asynchronous"),
    case("a pipeline", WINE, ("model", "m"), {"Containers": [{}, {}]}, "has several containers"),
    case("a component with specifications by instance type", LLAMA,
        ("inference_component", "llama"), {"Specifications": [{}, {}]}, "several containers"),
)  # fmt: skip
def test_models_that_a_sweep_cannot_copy_are_refused(
    named: NamedModel, key: tuple[str, str], resource: dict[str, Any], text: str
) -> None:
    sagemaker = FakeSagemaker()
    sagemaker.resources[key] = resource
    with pytest.raises(TerminalError, match=text):
        describe_model(sagemaker, named)


@cases(
    "variant, values, text",
    case("the cores of an endpoint", {}, {"cpus": 1}, "wine is an endpoint without components"),
    case("the memory of an endpoint", {}, {"memory_mb": 512}, "--sweep memory-mb: wine"),
    case("copies of a serverless endpoint", {"ServerlessConfig": {"MaxConcurrency": 1}},
        {"copies": 2}, "wine is serverless"),
)  # fmt: skip
def test_settings_that_a_model_does_not_have_are_refused(
    variant: dict[str, Any], values: dict[str, Any], text: str
) -> None:
    sagemaker = FakeSagemaker()
    config = {"ProductionVariants": [{**VARIANT, "ModelName": "m", **variant}]}
    sagemaker.resources["endpoint_config", "wine-1"] = config
    described = describe_model(sagemaker, WINE)
    given = {name.replace("_", "-"): value for name, value in values.items()}
    with pytest.raises(TerminalError, match=text):
        list_calls(described, "copy", "home", given)


@pytest.mark.parametrize("named", [WINE, LLAMA], ids=["an endpoint", "a component"])
def test_a_copy_is_deployed_and_removed(named: NamedModel) -> None:
    sagemaker = FakeSagemaker()
    copies = ModelCopies(sagemaker, CONFIG, named, "home", no_variables)
    made = copies.deploy({"copies": 2})
    assert made.endpoint.startswith(f"{named.component or named.endpoint}{MARK}")
    assert made.component == (made.endpoint if named.component else None)
    assert left_copies(sagemaker, "home") == [made.endpoint]
    copies.remove()
    copies.remove()
    assert sagemaker.resources == OWN


def test_a_variable_that_the_model_server_does_not_get_is_refused() -> None:
    copies = ModelCopies(FakeSagemaker(), CONFIG, LLAMA, "home", lambda _: {"LD_PRELOAD", "B"})
    with pytest.raises(TerminalError, match=r"does not get env:LD_PRELOAD: docs/fleet\.md"):
        copies.deploy({"env:LD_PRELOAD": "x", "env:A": "1"})


@pytest.mark.parametrize(
    "fails", ["create_endpoint_config", "create_endpoint", "create_inference_component"]
)
def test_a_deployment_that_fails_half_way_is_removed(fails: str) -> None:
    refused = ClientError({"Error": {"Message": "no room"}}, "Create")
    sagemaker = FakeSagemaker(fails, refused)
    copies = ModelCopies(sagemaker, CONFIG, LLAMA, "home", no_variables)
    with pytest.raises(TerminalError, match="no room"):
        copies.deploy({})
    copies.remove()
    assert sagemaker.resources == OWN


def test_the_next_sweep_removes_copies_that_a_killed_sweep_left() -> None:
    sagemaker = FakeSagemaker("create_inference_component", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        ModelCopies(sagemaker, CONFIG, LLAMA, "home", no_variables).deploy({})
    (left,) = left_copies(sagemaker, "home")
    assert left_copies(sagemaker, "another home") == []
    sagemaker.resources["model", f"x{MARK}1"] = {}
    assert left_copies(sagemaker, "home") == [left], "the other model has no tag"
    remove_copy(sagemaker, left)
    del sagemaker.resources["model", f"x{MARK}1"]
    assert sagemaker.resources == OWN


def test_a_failed_endpoint_gives_its_reason() -> None:
    sagemaker = FakeSagemaker()
    failed = {"EndpointStatus": "Failed", "FailureReason": "no room"}
    sagemaker.resources["endpoint", "x"] = failed
    with pytest.raises(TerminalError, match="endpoint x failed: no room"):
        wait_for_endpoint(sagemaker, "x")


def test_homes_have_different_tags(tmp_path: Path) -> None:
    first, second = home_tag(Home(tmp_path / "a")), home_tag(Home(tmp_path / "b"))
    assert first != second
    assert first == home_tag(Home(tmp_path / "a"))


def test_two_sweeps_of_a_home_do_not_deploy_copies_at_once(tmp_path: Path) -> None:
    running = CONFIG, new_credentials("111122223333", "us-east-1")
    home = Home(tmp_path)
    home.run.mkdir()
    with (home.run / "load-sweep.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with (
            pytest.raises(TerminalError, match="another `hostelry load --sweep` deploys"),
            model_copies(home, running, WINE),
        ):
            pass
