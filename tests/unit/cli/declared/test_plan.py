"""Plans against a town: the steps for the observed resources, and the state after them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.cli.declared.documents import EVERY, LATER, SHOP
from tests.unit.cli.declared.rig import (
    ROLE,
    Killed,
    TownAws,
    application,
    apply,
    described,
    difference,
)
from tests.unit.reconcile.samples import SCOPE, Town

from hostelry.base.errors import TerminalError
from hostelry.cli.declared.apply import diff_lines
from hostelry.cli.declared.export import build_document, document_text
from hostelry.cli.declared.observation import observed_state
from hostelry.domain.component import ComponentStatus

IMAGE = "djl-inference:0.29.0-lmi"
NEEDS = "MinMemoryRequiredInMb: 1024"
BASE = f"base: {{Image: {IMAGE}, ArtifactUrl: s3://b/m.tar.gz, {NEEDS}"
COMPONENTS = f"endpoints: {{e: {{InstanceType: ml.big, Components: {{{BASE}}}}}}}}}"
MODEL = f"models: {{m: {{Image: {IMAGE}, Environment: {{V: 1}}}}}}\n"
ENDPOINT = "endpoints: {e: {ModelName: m, InstanceType: ml.big}}\n"
ALARM = (
    "{Namespace: N, MetricName: M, Statistic: Sum, Period: 60, EvaluationPeriods: 1, Threshold: 1,"
    " ComparisonOperator: GreaterThanThreshold}"
)
SCALED = (
    f"endpoints: {{e: {{InstanceType: ml.big, Components: {{{BASE}, Scaling: {{MinCapacity: 1,"
    " MaxCapacity: 2, Policies: {p: {TargetValue: 5}}}}}}}"
)

OTHER = (
    "{q: {TargetValue: 5, Metric:"
    " SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution}, "
)


@pytest.fixture
def aws() -> Iterator[TownAws]:
    town = Town()
    yield TownAws(town)
    town.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fruits").mkdir()
    (tmp_path / "fruits" / "model.bin").write_bytes(b"weights")
    return tmp_path


def written(aws: TownAws, *endpoints: str) -> str:
    return document_text(build_document(observed_state(aws, lambda _: True, ROLE), endpoints))


def lines(aws: TownAws, text: str, *, prune: bool = False) -> list[str]:
    return [line for _, line in diff_lines(difference(aws, text, prune=prune))]


@cases(
    "before, after, operations",
    case("a model that is not there is created", "", MODEL, ["CreateModel m"]),
    case("a changed model is another one: its endpoints are updated, the old one goes last",
        MODEL + ENDPOINT, MODEL.replace("V: 1", "V: 2") + ENDPOINT, [
            "CreateModel m",
            "CreateEndpointConfig e-",
            "UpdateEndpoint e",
            "DeleteEndpointConfig e-",
            "DeleteModel m",
        ]),
    case("a count alone needs no new configuration", MODEL + ENDPOINT,
        MODEL + ENDPOINT.replace("ml.big", "ml.big, InitialInstanceCount: 2"),
        ["UpdateEndpointWeightsAndCapacities e"]),
    case("a number of copies alone needs no new copies of the others", COMPONENTS,
        COMPONENTS.replace("1024", "1024, CopyCount: 2"),
        ["UpdateInferenceComponentRuntimeConfig base"]),
    case("a specification and a number of copies are one update", COMPONENTS,
        COMPONENTS.replace("1024", "2048, CopyCount: 2"), ["UpdateInferenceComponent base"]),
    case("a component can have no copy", COMPONENTS,
        COMPONENTS.replace("1024", "1024, CopyCount: 0"),
        ["UpdateInferenceComponentRuntimeConfig base"]),
    case("the copies of a scaled component are its target's", SCALED,
        SCALED.replace("1024", "1024, CopyCount: 2"), []),
    case("a policy is marked before it is there", SCALED,
        SCALED.replace("MaxCapacity: 2", "MaxCapacity: 3").replace("{p: ", OTHER + "p: "),
        ["RegisterScalableTarget inference-component/base", "TagResource q",
         "PutScalingPolicy q"]),
    case("tags alone", f"alarms: {{a: {ALARM}}}", f"alarms: {{a: {ALARM[:-1]}, Tags: {{t: 1}}}}}}",
        ["TagResource a"]),
    case("a tag that is named no more", f"alarms: {{a: {ALARM[:-1]}, Tags: {{t: 1, u: 2}}}}}}",
        f"alarms: {{a: {ALARM[:-1]}, Tags: {{t: 1}}}}}}", ["UntagResource a"]),
    case("without Tags those that are there stay", f"alarms: {{a: {ALARM[:-1]}, Tags: {{t: 1}}}}}}",
        f"alarms: {{a: {ALARM}}}", []),
    case("no metric alarm becomes a composite one", f"alarms: {{a: {ALARM}, b: {ALARM}}}",
        f"alarms: {{a: {{AlarmRule: ALARM(b)}}, b: {ALARM}}}",
        ["DeleteAlarms a", "PutCompositeAlarm a"]),
    case("an endpoint of models cannot become one of components by an update",
        MODEL + "endpoints: {e: {ModelName: m, InstanceType: ml.big}}",
        MODEL + "endpoints: {e: {InstanceType: ml.big}}",
        ["DeleteEndpoint e", "CreateEndpointConfig e-", "CreateEndpoint e",
         "DeleteEndpointConfig e-"]),
)  # fmt: skip
def test_the_steps_between_two_documents(
    aws: TownAws, before: str, after: str, operations: list[str]
) -> None:
    if before:
        apply(aws, before)
    steps = described(difference(aws, after))
    assert [it.partition("-")[0] + "-" if "Config e-" in it else it for it in steps] == operations
    apply(aws, after)
    assert described(difference(aws, after)) == []


def test_an_export_is_as_desired_and_makes_the_same_elsewhere(aws: TownAws, folder: Path) -> None:
    apply(aws, SHOP, folder)
    text = written(aws)
    assert described(difference(aws, text, prune=True)) == []
    apply(aws, LATER, folder, prune=True)
    assert described(difference(aws, written(aws), prune=True)) == []
    town = Town()
    elsewhere = TownAws(town)
    apply(elsewhere, text)
    assert written(elsewhere) == text
    town.close()


def test_every_kind_of_configuration_reads_back_as_it_was_written(aws: TownAws) -> None:
    first = application(aws, EVERY)
    first.waits = False
    first.converge(lambda _: None)
    assert described(difference(aws, EVERY)) == []
    text = written(aws)
    assert described(difference(aws, text)) == []
    town = Town()
    elsewhere = TownAws(town)
    other = application(elsewhere, text)
    other.waits = False
    other.converge(lambda _: None)
    assert written(elsewhere) == text
    town.close()


def test_what_unnamed_documents_made_is_the_sets_once_they_have_a_name(aws: TownAws) -> None:
    apply(aws, SCALED)
    named = "set: mine\n" + SCALED
    assert {it.partition(" ")[0] for it in described(difference(aws, named))} == {
        "AddTags",
        "TagResource",
    }
    apply(aws, named)
    assert described(difference(aws, named)) == []
    apply(aws, "set: mine\nmodels: {}", prune=True)
    assert observed_state(aws, lambda _: True, ROLE).resources == {}


def test_an_export_of_one_endpoint_has_what_belongs_to_it(aws: TownAws, folder: Path) -> None:
    apply(aws, SHOP, folder)
    text = written(aws, "shop")
    assert "errors:" in text
    assert "fruits:" in text
    assert "llms" not in text
    assert "any:" not in text
    assert described(difference(aws, text)) == []


def test_what_programs_made_is_exported_taken_as_it_is_and_never_pruned(aws: TownAws) -> None:
    container = {"Image": IMAGE, "Environment": {"A": "yes", "B": "1e5", "C": "a\nb"}}
    aws.call("sagemaker", "CreateModel", {"ModelName": "m", "Containers": [container]})
    variant = {"VariantName": "one", "ModelName": "m", "InstanceType": "ml.big",
               "InitialInstanceCount": 1, "InitialVariantWeight": 0.5}  # fmt: skip
    config = {"EndpointConfigName": "c", "ProductionVariants": [variant]}
    aws.call("sagemaker", "CreateEndpointConfig", config)
    aws.call("sagemaker", "CreateEndpoint", {"EndpointName": "e", "EndpointConfigName": "c"})
    aws.town.settle()
    text = written(aws)
    assert described(difference(aws, text)) == []
    assert described(difference(aws, "set: mine\n" + text, prune=True)) == []
    assert described(difference(aws, "set: mine\nmodels: {}", prune=True)) == []


def test_prune_deletes_what_the_set_made_users_first(aws: TownAws, folder: Path) -> None:
    apply(aws, SHOP, folder)
    apply(aws, f"set: other\nalarms: {{theirs: {ALARM}}}")
    apply(aws, "set: shop\nmodels: {}", prune=True)
    left = observed_state(aws, lambda _: True, ROLE)
    assert [it.name for it in left.resources] == ["theirs"]


def test_what_another_set_made_is_not_changed(aws: TownAws) -> None:
    apply(aws, "set: theirs\n" + COMPONENTS)
    assert described(difference(aws, "set: mine\n" + COMPONENTS)) == []
    with pytest.raises(TerminalError) as caught:
        difference(aws, "set: mine\n" + COMPONENTS.replace("1024", "2048"))
    assert 'component base was made by the documents of set "theirs"' in str(caught.value)


def test_a_failed_component_is_reported_with_its_reason_and_replaced_by_the_next_apply(
    aws: TownAws,
) -> None:
    text = COMPONENTS.replace(NEEDS, f"{NEEDS}, Adapters: {{es: s3://b/es.tar.gz}}")
    aws.town.switches.broken_images[IMAGE] = "weights are missing"
    with pytest.raises(TerminalError) as caught:
        apply(aws, text)
    assert "create component base: component base is Failed: weights are missing" in str(
        caught.value
    )
    assert "1 steps that need this were not tried" in str(caught.value)
    aws.town.switches.broken_images.clear()
    shown = "-/+ component base  (it is Failed: weights are missing"
    assert any(line.startswith(shown) for line in lines(aws, text))
    apply(aws, text)
    assert described(difference(aws, text)) == []


def test_an_update_that_is_taken_back_is_a_failure_and_is_tried_again(aws: TownAws) -> None:
    apply(aws, MODEL + ENDPOINT)
    broken = MODEL.replace(IMAGE, "djl-inference:broken") + ENDPOINT
    aws.town.switches.broken_images["djl-inference:broken"] = "no such operator"
    with pytest.raises(TerminalError) as caught:
        apply(aws, broken)
    assert "update endpoint e: endpoint e is InService: " in str(caught.value)
    assert "no such operator" in str(caught.value)
    aws.town.switches.broken_images.clear()
    assert "UpdateEndpoint e" in described(difference(aws, broken))
    apply(aws, broken)
    assert described(difference(aws, broken)) == []


def test_a_change_of_others_meanwhile_is_planned_again(aws: TownAws) -> None:
    def rival(operation: str, params: Any) -> None:
        if operation == "CreateModel":
            aws.before_write = lambda *_: None
            apply(aws, MODEL)

    aws.before_write = rival
    apply(aws, MODEL + ENDPOINT)
    assert described(difference(aws, MODEL + ENDPOINT)) == []
    assert aws.writes.count("CreateModel") == 2


@pytest.mark.parametrize("operation", ["CreateEndpoint", "DeleteEndpoint"])
def test_what_is_under_way_is_waited_for(aws: TownAws, operation: str) -> None:
    text = MODEL + ENDPOINT
    if operation == "DeleteEndpoint":
        apply(aws, text)
        aws.call("sagemaker", operation, {"EndpointName": "e"})
    else:
        aws.kill_at, aws.after = 3, True  # the third write is CreateEndpoint
        with pytest.raises(Killed):
            apply(aws, text)
        aws.kill_at = None
    [endpoint] = aws.call("sagemaker", "ListEndpoints", {})["Endpoints"]
    assert endpoint["EndpointStatus"] in ("Creating", "Deleting")
    apply(aws, text)
    assert described(difference(aws, text)) == []
    assert aws.call("sagemaker", "DescribeEndpoint", {"EndpointName": "e"})["EndpointStatus"] == (
        "InService"
    )


def test_a_value_that_others_put_back_ends_after_some_rounds(aws: TownAws) -> None:
    text = f"alarms: {{a: {ALARM}}}"
    apply(aws, text)
    other = text.replace("Threshold: 1", "Threshold: 2")

    class Stubborn(TownAws):
        def call(self, service: str, operation: str, params: Any) -> dict[str, Any]:
            result = super().call(service, operation, params)
            if operation == "PutMetricAlarm" and params["Threshold"] == 2:
                super().call(service, operation, {**params, "Threshold": 1})
            return result

    with pytest.raises(TerminalError) as caught:
        apply(Stubborn(aws.town), other)
    assert "after 5 rounds this is still different from the documents: alarm a" in str(caught.value)


@cases(
    "prune",
    case("what else there is stays", False),
    case("what no document names is deleted", True),
)  # fmt: skip
def test_a_component_that_is_replaced_is_scaled_again(aws: TownAws, prune: bool) -> None:
    text = "set: mine\n" + SCALED.replace("{p: ", OTHER + "p: ")
    apply(aws, text)
    found = aws.town.state.components.get(SCOPE, "base")
    assert found is not None
    failed = replace(found.value, status=ComponentStatus.FAILED)
    aws.town.state.components.put(SCOPE, "base", failed, expect=found.version)
    one_policy = "set: mine\n" + SCALED
    steps = described(apply(aws, one_policy, prune=prune))
    assert steps == [
        "DeleteInferenceComponent base",
        "CreateInferenceComponent base",
        "RegisterScalableTarget inference-component/base",
        "PutScalingPolicy p",
    ]
    assert described(difference(aws, one_policy, prune=prune)) == []


def test_a_diff_shows_fields_as_documents_have_them(aws: TownAws) -> None:
    apply(aws, MODEL + ENDPOINT)
    changed = MODEL.replace("V: 1", "V: 2, W: 3") + ENDPOINT.replace("ml.big", "ml.small")
    found = lines(aws, changed)
    assert found[0].startswith("+ model m  (a changed model is a new one: m-")
    assert found[1:3] == ["    ~ Environment.V: 1 -> 2", "    + Environment.W: 3"]
    assert found[3] == "~ endpoint e"
    assert "    ~ InstanceType: ml.big -> ml.small" in found
    assert found[-1] == "1 to create, 1 to update; 0 resources are as desired."


def test_a_local_file_that_is_gone_meanwhile_is_a_failure_that_names_it(
    aws: TownAws, folder: Path
) -> None:
    text = MODEL.replace("Environment", "ModelDataUrl: ./fruits/model.bin, Environment")
    one = application(aws, text, folder)
    (folder / "fruits" / "model.bin").unlink()
    with pytest.raises(TerminalError) as caught:
        one.converge(lambda _: None)
    assert "model.bin cannot be read: No such file or directory" in str(caught.value)


def test_local_folders_are_uploaded_once_by_their_content(aws: TownAws, folder: Path) -> None:
    text = MODEL.replace("Environment", "ModelDataUrl: ./fruits, Environment")
    apply(aws, text, folder)
    assert aws.writes == ["PutObject", "CreateModel"]
    (folder / "fruits" / "model.bin").touch()
    assert described(difference(aws, text, folder)) == []
    (folder / "fruits" / "model.bin").write_bytes(b"other")
    apply(aws, text, folder)
    assert len(aws.objects) == 2
