"""Documents: their parsed values, and faults with their places."""

from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.cli.declared.rig import ROLE

from hostelry.base.errors import TerminalError
from hostelry.cli.declared.expansion import wanted_state
from hostelry.cli.declared.resource import DocumentError, ResourceKind
from hostelry.cli.declared.schema import schema_text
from hostelry.cli.declared.source import parse_sources, read_sources

ROOT = Path(__file__).resolve().parents[4]
NEEDS = "MinMemoryRequiredInMb: 128"


def wanted(*texts: str) -> dict[str, Any]:
    """The params of each resource by its kind and name."""
    sources = [
        source
        for number, text in enumerate(texts, 1)
        for source in parse_sources(text, f"{number}.yaml", Path("/docs"))
    ]
    found = wanted_state(sources, ROLE).resources
    return {f"{key.kind.value} {key.name}": it.params for key, it in found.items()}


@cases(
    "text, name, params",
    case(
        "a model's single container stands beside its fields; variables are texts",
        "models: {m: {Image: i, ModelDataUrl: s3://b/m, Environment: {A: 1.10, B: true}}}",
        "model m",
        {
            "Containers": [
                {
                    "Image": "i",
                    "ModelDataUrl": "s3://b/m",
                    "Environment": {"A": "1.10", "B": "true"},
                }
            ]
        },
    ),
    case(
        "a pipeline has AWS's own list",
        "models: {m: {Containers: [{Image: i}, {Image: j}],"
        " ExecutionRoleArn: 'arn:aws:iam::1:role/r'}}",
        "model m",
        {
            "ExecutionRoleArn": "arn:aws:iam::1:role/r",
            "Containers": [{"Image": "i"}, {"Image": "j"}],
        },
    ),
    case(
        "a single variant stands beside the endpoint's fields",
        "endpoints: {e: {ModelName: m, InstanceType: ml.m5.large}}",
        "endpoint e",
        {
            "Config": {
                "ProductionVariants": [
                    {
                        "ModelName": "m",
                        "InstanceType": "ml.m5.large",
                        "VariantName": "AllTraffic",
                        "InitialInstanceCount": 1,
                    }
                ]
            }
        },
    ),
    case(
        "a target value alone is a policy of the usual metric, of serverless another",
        "endpoints: {e: {ModelName: m, ServerlessConfig: {MemorySizeInMB: 1024,"
        " MaxConcurrency: 2}, Scaling: {MinCapacity: 1, MaxCapacity: 2, TargetValue: 0.5}}}",
        "scaling policy target-tracking",
        {
            "PolicyType": "TargetTrackingScaling",
            "TargetTrackingScalingPolicyConfiguration": {
                "TargetValue": 0.5,
                "PredefinedMetricSpecification": {
                    "PredefinedMetricType": ("SageMakerVariantProvisionedConcurrencyUtilization")
                },
            },
        },
    ),
    case(
        "a component of an endpoint in no document has a section of its own",
        f"components: {{c: {{EndpointName: e, ModelName: m, {NEEDS}, CopyCount: 2}}}}",
        "component c",
        {
            "EndpointName": "e",
            "CopyCount": 2,
            "Specification": {
                "ModelName": "m",
                "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 128},
            },
        },
    ),
    case(
        "an adapter is its archive; a local path begins at the document's folder",
        f"endpoints: {{e: {{InstanceType: t, Components: {{c: {{Image: i, {NEEDS},"
        " Adapters: {a: ../es}}}}}",
        "component a",
        {
            "EndpointName": "e",
            "Specification": {
                "Container": {"ArtifactUrl": "local:archive:/es"},
                "BaseInferenceComponentName": "c",
            },
        },
    ),
    case(
        "a local folder of many models becomes a prefix",
        "models: {m: {Image: i, Mode: MultiModel, ModelDataUrl: ./models}}",
        "model m",
        {
            "Containers": [
                {"Image": "i", "Mode": "MultiModel", "ModelDataUrl": "local:prefix:/docs/models"}
            ]
        },
    ),
    case(
        "a scheduled action has its bounds beside its fields, and times in UTC",
        "scaling: {endpoint/e/variant/v: {MinCapacity: 0, MaxCapacity: 2, ScheduledActions:"
        " {n: {Schedule: rate(1 day), MinCapacity: 0, StartTime: 2030-01-01T00:00:00Z}}}}",
        "scheduled action n",
        {
            "Schedule": "rate(1 day)",
            "StartTime": "2030-01-01T00:00:00+00:00",
            "ScalableTargetAction": {"MinCapacity": 0},
        },
    ),
    case(
        "an alarm's dimensions are values by name; defaults make no difference",
        "alarms: {a: {Dimensions: {Z: 1z, A: a}, ActionsEnabled: true, Threshold: 1.0}}",
        "alarm a",
        {"Dimensions": [{"Name": "A", "Value": "a"}, {"Name": "Z", "Value": "1z"}], "Threshold": 1},
    ),
)
def test_short_forms_become_the_fields_of_requests(text: str, name: str, params: Any) -> None:
    assert wanted(text)[name] == params


@cases(
    "text, fault",
    case(
        "a misspelt field, with the near miss",
        "models:\n  m:\n    Image: i\n    Enviroment: {A: 1}",
        "1.yaml:4: models.m.Enviroment: there is no such field; is it Environment?",
    ),
    case(
        "a value of another type",
        "endpoints:\n  e: {InstanceType: t, InitialInstanceCount: two}",
        '1.yaml:2: endpoints.e.InitialInstanceCount: "two" is a text; a whole number is expected',
    ),
    case(
        "a number out of range",
        "endpoints:\n  e:\n    InstanceType: t\n    Components:\n      c:\n"
        "        MinMemoryRequiredInMb: 1",
        "1.yaml:6: endpoints.e.Components.c.MinMemoryRequiredInMb: 1 is out of range; it is"
        " at least 128",
    ),
    case(
        "a value that is not allowed, with what is",
        "alarms:\n  a: {ComparisonOperator: GreaterThanTreshold}",
        '1.yaml:2: alarms.a.ComparisonOperator: "GreaterThanTreshold" is not allowed; is it'
        " GreaterThanThreshold",
    ),
    case(
        "a key that is given twice",
        "models: {m: {Image: i}}\nmodels: {n: {Image: i}}",
        "1.yaml:2: it is not valid YAML: the key models is given twice",
    ),
    case("a text that is no YAML", "models: {m: ", "1.yaml:1: it is not valid YAML:"),
    case("a list", "- a", '1.yaml:1: ["a"] is a list; a mapping is expected'),
    case(
        "anchors, of which a few lines are gigabytes",
        "models: {a: &x {Image: i}, b: *x}",
        "1.yaml:1: it is not valid YAML: anchors and aliases are refused",
    ),
    case(
        "a container in two places",
        "models: {m: {Image: i, PrimaryContainer: {Image: j}}}",
        "1.yaml:1: models.m.Image: it belongs in PrimaryContainer, which is given too",
    ),
    case(
        "a variant in two places",
        "endpoints: {e: {InstanceType: t, ProductionVariants: [{VariantName: v}]}}",
        "1.yaml:1: endpoints.e.InstanceType: it belongs in ProductionVariants",
    ),
    case(
        "an endpoint without a variant",
        "endpoints: {e: {}}",
        "1.yaml:1: endpoints.e: it has no variant; give InstanceType, or ProductionVariants",
    ),
    case(
        "scaling without a bound",
        "endpoints: {e: {InstanceType: t, Scaling: {MinCapacity: 1}}}",
        "1.yaml:1: endpoints.e.Scaling: MaxCapacity is required",
    ),
    case(
        "a resource that cannot be scaled",
        "scaling: {endpoint/e: {MinCapacity: 1, MaxCapacity: 2}}",
        "1.yaml:1: scaling.endpoint/e: its name is endpoint/NAME/variant/NAME or",
    ),
    case(
        "a policy of two types",
        "scaling: {inference-component/c: {MinCapacity: 1, MaxCapacity: 2, Policies:"
        " {p: {TargetValue: 1, StepAdjustments: []}}}}",
        "Policies.p: StepAdjustments is of step scaling; TargetValue is of target tracking",
    ),
    case(
        "a time that is none",
        "scaling: {inference-component/c: {MinCapacity: 1, MaxCapacity: 2, ScheduledActions:"
        " {n: {Schedule: rate(1 day), StartTime: soon}}}}",
        "ScheduledActions.n: Invalid isoformat string: 'soon'",
    ),
    case(
        "a composite alarm with a metric",
        "alarms: {a: {AlarmRule: ALARM(b), Period: 60}}",
        "1.yaml:1: alarms.a.Period: an alarm with an AlarmRule has no such field",
    ),
    case(
        "an adapter of an adapter",
        f"endpoints: {{e: {{InstanceType: t, Components: {{c: {{Image: i, {NEEDS},"
        " Adapters: {a: s3://b/a}}}}}\nadapters: {d: {EndpointName: e,"
        " BaseInferenceComponentName: a, ArtifactUrl: s3://b/d}}",
        "1.yaml:2: d: its base a is an adapter itself",
    ),
)
def test_a_fault_names_its_file_line_field_and_what_is_allowed(text: str, fault: str) -> None:
    with pytest.raises(DocumentError) as caught:
        wanted(text)
    assert fault in str(caught.value)


def test_all_faults_are_named_at_once_and_not_more_than_twenty() -> None:
    text = "models:\n" + "".join(f"  m{number}: {{Imag: i}}\n" for number in range(25))
    with pytest.raises(DocumentError) as caught:
        wanted(text)
    assert str(caught.value).startswith("25 faults in the documents; nothing was changed\n")
    assert str(caught.value).endswith("\n... and 5 more")


def test_a_name_is_given_once_in_all_documents_and_the_set_is_one() -> None:
    with pytest.raises(DocumentError) as caught:
        wanted("set: a\nmodels: {m: {Image: i}}", "set: b\n---\nmodels:\n  m: {Image: j}")
    assert '2.yaml:1: set: it is "b", and "a" in a document before it' in str(caught.value)
    assert "2.yaml:4: models.m: model m is also at 1.yaml:2" in str(caught.value)


def test_folders_files_and_several_documents_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text('{"models": {"b": {"Image": "i"}}}')
    (tmp_path / "a.yaml").write_text("models: {a: {Image: i}}\n---\n---\nmodels: {c: {Image: i}}")
    (tmp_path / "notes.txt").write_text("no document")
    found = wanted_state(read_sources([tmp_path]), ROLE).resources
    assert [it.name for it in found if it.kind is ResourceKind.MODEL] == ["a", "c", "b"]


@cases(
    "name, content, reason",
    case("no file", "absent.yaml", None, "cannot be read: No such file"),
    case("no text", "a.yaml", b"\xff", "is not UTF-8 (byte 0)"),
    case("comments alone", "a.yaml", b"# nothing", "there is no document"),
)
def test_a_file_without_a_document_is_an_error(
    name: str, content: bytes | None, reason: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TerminalError) as caught:
        read_sources([tmp_path / name])
    assert reason in str(caught.value)


def test_the_published_schema_is_that_of_the_types() -> None:
    published = (ROOT / "docs" / "apply.schema.json").read_text()
    assert published == schema_text(), "run `hostelry apply --schema > docs/apply.schema.json`"


@pytest.mark.parametrize("path", sorted((ROOT / "examples/apply").glob("*.yaml")), ids=str)
def test_examples_are_documents_and_name_the_schema(path: Path) -> None:
    assert wanted_state(read_sources([path]), ROLE).resources
    [first, *_] = path.read_text().splitlines()
    schema = first.removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / schema).resolve() == ROOT / "docs" / "apply.schema.json"
