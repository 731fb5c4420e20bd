"""Deployments carried out over the real APIs of a town."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.cli.declared.rig import ROLE, Killed, Silent, TownAws
from tests.unit.cli.deploy.test_plan import deployment, folder
from tests.unit.reconcile.samples import SCOPE, Town

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.files import FoundFile
from hostelry.cli.declared.application import Application
from hostelry.cli.declared.observation import ObservedState
from hostelry.cli.declared.resource import Observed, ResourceKey, ResourceKind
from hostelry.cli.deploy.calls import carry_out
from hostelry.cli.deploy.plan import ModelDeployment
from hostelry.cli.deploy.source import Found, adapters_in
from hostelry.cli.deploy.steps import (
    build_uploads,
    build_wanted_state,
    check_free,
    component_key,
    list_texts,
    missing_objects,
)
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.home.home import Home

ORDER = [
    "create endpoint config", "create endpoint", "create bucket", "upload to", "create model",
    "create inference component", "create adapter", "create adapter", "scale",
]  # fmt: skip


@pytest.fixture
def aws() -> Iterator[TownAws]:
    town = Town()
    yield TownAws(town)
    town.close()


@pytest.fixture
def build(tmp_path: Path) -> Any:
    """Builds a deployment of files that exist, with two adapters if `adapters`."""

    def found(*names: str) -> Found:
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(b"w" * 100)
        files = tuple(FoundFile(name=it, size_bytes=100, path=str(tmp_path / it)) for it in names)
        return replace(folder(), files=files)

    def make(*, adapters: bool = False, content: str = "", **given: Any) -> ModelDeployment:
        sources = adapters_in(found("es/adapter_config.json", "fr/adapter_config.json"))
        it = deployment(
            found=found("config.json", "model.safetensors"),
            adapters=sources if adapters else (),
            content=content,
            **given,
        )
        return replace(it, config=replace(it.config, instance_type="ml.big"))

    return make


def application(aws: TownAws, it: ModelDeployment) -> Application:
    present = frozenset(key for _, key in aws.objects)
    return Application(
        aws=aws,
        wanted=build_wanted_state(it, ROLE),
        uploads=build_uploads(it, missing_objects(it, present)),
        prune=False,
        pause=aws.pause,
        listener=Silent(),
        num_workers=1,
    )


def deploy(aws: TownAws, it: ModelDeployment, home: Path = Path()) -> None:
    carry_out(application(aws, it), it.name, Home(home))


def texts(aws: TownAws, it: ModelDeployment) -> list[str]:
    one = application(aws, it)
    observed = one.observe()
    check_free(it, observed)
    return list_texts(one.plan(observed).steps, "" if aws.objects else it.bucket)


def short(aws: TownAws, it: ModelDeployment) -> list[str]:
    """The texts without the names."""
    return [text.rpartition(" ")[0] for text in texts(aws, it)]


def state(aws: TownAws) -> list[object]:
    """All present resources."""
    names = [("sagemaker", "ListModels"), ("sagemaker", "ListEndpointConfigs")]
    shown: list[object] = [len(aws.call(*it, {})[it[1].removeprefix("List")]) for it in names]
    for name in ("chat", "chat-es", "chat-fr"):
        call = ("sagemaker", "DescribeInferenceComponent", {"InferenceComponentName": name})
        found = aws.call(*call)
        found["Specification"].get("Container", {}).pop("DeployedImage", None)  # it has a time
        shown += [found["InferenceComponentStatus"], found["Specification"]]
    targets = aws.call(
        "application-autoscaling", "DescribeScalableTargets", {"ServiceNamespace": "sagemaker"}
    )
    shown += [(it["MinCapacity"], it["MaxCapacity"]) for it in targets["ScalableTargets"]]
    return [*shown, sorted(aws.objects)]


def test_from_nothing_every_step_is_taken_and_a_second_run_changes_nothing(
    aws: TownAws, build: Any
) -> None:
    it = build(adapters=True, min_copies=1, max_copies=2)
    assert short(aws, it) == ORDER
    deploy(aws, it)
    assert texts(aws, it) == []
    written = len(aws.writes)
    deploy(aws, it)
    assert len(aws.writes) == written
    tags = aws.call("sagemaker", "ListTags", {"ResourceArn": model_arn(aws, it)})["Tags"]
    assert tags == [{"Key": "hostelry:deployed", "Value": "chat"}]
    for name in ("endpoint/chat", "inference-component/chat"):
        arn = SCOPE.arn(*name.split("/"))
        assert aws.call("sagemaker", "ListTags", {"ResourceArn": arn})["Tags"] == []


def model_arn(aws: TownAws, it: ModelDeployment) -> str:
    arn: str = aws.call("sagemaker", "DescribeModel", {"ModelName": it.model.name})["ModelArn"]
    return arn


@pytest.mark.slow
def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(build: Any) -> None:
    it = build(adapters=True, min_copies=1, max_copies=2)

    def ended_at(number: int | None) -> list[object]:
        town = Town()
        aws = TownAws(town)
        aws.kill_at, aws.after = number, True
        try:
            deploy(aws, it)
        except Killed:
            aws.kill_at = None
            deploy(aws, it)
        assert texts(aws, it) == []
        found = state(aws)
        town.close()
        return found

    whole = ended_at(None)
    for number in range(1, len(ORDER) + 1):
        assert ended_at(number) == whole, f"killed at write {number}"


@cases(
    "given, changed, expected",
    case("another model", {}, {"content": "b"},
        ["upload to", "create model", "update inference component"]),
    case("another number of copies", {"copies": 2}, {"copies": 3}, ["set the copies of"]),
    case("other bounds", {"min_copies": 1, "max_copies": 2}, {"min_copies": 2, "max_copies": 2},
        ["scale"]),
    case("no number keeps the copies", {"copies": 2}, {}, []),
)  # fmt: skip
def test_only_what_differs_is_changed(
    aws: TownAws, build: Any, given: dict[str, Any], changed: dict[str, Any], expected: list[str]
) -> None:
    first = build(**given)
    deploy(aws, first)
    it = replace(build(**changed), config=first.config)
    assert short(aws, it) == expected
    deploy(aws, it)
    assert texts(aws, it) == []


def test_another_instance_type_and_another_reservation(aws: TownAws, build: Any) -> None:
    it = build()
    deploy(aws, it)
    config = replace(it.config, name="chat-other", instance_type="ml.small")
    assert texts(aws, replace(it, config=config)) == [
        "create endpoint config chat-other", "update endpoint chat",
    ]  # fmt: skip
    it = replace(it, requirements=replace(it.requirements, cpus=1.0))
    assert texts(aws, it) == ["update inference component chat"]


def test_an_adapters_other_weights_and_copies_that_something_scales(
    aws: TownAws, build: Any
) -> None:
    it = build(adapters=True, min_copies=1, max_copies=3)
    deploy(aws, it)
    other = replace(it.adapters[0], uri="s3://older/es.tar.gz")
    assert short(aws, replace(it, adapters=(other, it.adapters[1]))) == ["update adapter"]
    counted = replace(it, scaling=None, copies=2)
    assert texts(aws, counted) == ["set the copies of chat"]


def test_what_failed_before_is_remade_with_its_adapters_which_go_first(
    aws: TownAws, build: Any
) -> None:
    it = build(adapters=True)
    deploy(aws, it)
    found = aws.town.state.components.get(SCOPE, "chat")
    assert found is not None
    failed = replace(found.value, status=ComponentStatus.FAILED)
    aws.town.state.components.put(SCOPE, "chat", failed, expect=found.version)
    assert texts(aws, it) == [
        "delete the failed component chat-es", "delete the failed component chat-fr",
        "delete the failed component chat", "create inference component chat",
        "create adapter chat-es", "create adapter chat-fr",
    ]  # fmt: skip
    deploy(aws, it)
    assert texts(aws, it) == []


def test_a_failed_endpoint_is_remade_with_its_component(aws: TownAws, build: Any) -> None:
    it = build()
    deploy(aws, it)
    found = aws.town.state.endpoints.get(SCOPE, "chat")
    assert found is not None
    failed = replace(found.value, status=EndpointStatus.FAILED)
    aws.town.state.endpoints.put(SCOPE, "chat", failed, expect=found.version)
    assert texts(aws, it) == [
        "delete the failed component chat", "delete the failed endpoint chat",
        "create endpoint chat", "create inference component chat",
    ]  # fmt: skip


def test_what_fails_in_this_run_ends_it_with_the_cause(
    aws: TownAws, build: Any, tmp_path: Path
) -> None:
    it = build()
    aws.town.switches.broken_images[it.model.image] = "no memory"
    with pytest.raises(TerminalError) as caught:
        deploy(aws, it, tmp_path / "home")
    assert str(caught.value).startswith("component chat failed: no memory")
    assert "`hostelry rm chat` removes what is left" in str(caught.value)
    aws.town.switches.broken_images.clear()
    deploy(aws, it)
    assert texts(aws, it) == []


@cases(
    "key, params, error",
    case("an endpoint of models", ResourceKey(ResourceKind.ENDPOINT, "chat"),
        {"Config": {"ProductionVariants": [{"VariantName": "AllTraffic", "ModelName": "m"}]}},
        "an endpoint chat with models of its own"),
    case("a component elsewhere", component_key("chat"), {"EndpointName": "shared"},
        "component chat on endpoint shared: choose another --name"),
)  # fmt: skip
def test_what_belongs_to_something_else_is_left_alone(
    build: Any, key: ResourceKey, params: dict[str, Any], error: str
) -> None:
    with pytest.raises(TerminalError, match=error):
        check_free(build(), ObservedState(resources={key: Observed(key=key, params=params)}))
