"""Models, tags and the caller's identity."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.domain.scope import Scope

ARN = "arn:aws:sagemaker:us-west-2:123456789012:"
IMAGE = "registry/image:tag"
S3_SOURCE = {"S3Uri": "s3://b/k/", "S3DataType": "S3Prefix", "CompressionType": "None"}


def test_a_model_is_echoed_with_its_arn_and_time(api: Api) -> None:
    vpc = {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
    api.make.model("My-Model", VpcConfig=vpc)
    shown = api.call("DescribeModel", ModelName="My-Model")
    assert shown["ModelArn"] == ARN + "model/my-model"
    assert shown["CreationTime"] == api.clock.now()
    assert shown["PrimaryContainer"]["Environment"] == {"A": "1", "B": "2"}
    assert shown["VpcConfig"] == vpc
    assert "Tags" not in shown
    assert api.call("DeleteModel", ModelName="My-Model") == {}
    assert api.call("ListModels")["Models"] == []


@cases(
    "container, source",
    case("no artifacts", {}, None),
    case(
        "an archive by URL",
        {"ModelDataUrl": "s3://b/m.tar.gz"},
        ArtifactSource(uri="s3://b/m.tar.gz", kind=SourceKind.ARCHIVE),
    ),
    case(
        "a prefix",
        {"ModelDataSource": {"S3DataSource": S3_SOURCE}},
        ArtifactSource(uri="s3://b/k/", kind=SourceKind.PREFIX),
    ),
    case(
        "one object",
        {
            "ModelDataSource": {
                "S3DataSource": {**S3_SOURCE, "S3Uri": "s3://b/k", "S3DataType": "S3Object"}
            }
        },
        ArtifactSource(uri="s3://b/k", kind=SourceKind.OBJECT),
    ),
    case(
        "an archive by source, with its licence accepted",
        {
            "ModelDataSource": {
                "S3DataSource": {
                    "S3Uri": "s3://b/k",
                    "S3DataType": "S3Object",
                    "CompressionType": "Gzip",
                    "ModelAccessConfig": {"AcceptEula": True},
                }
            }
        },
        ArtifactSource(uri="s3://b/k", kind=SourceKind.ARCHIVE),
    ),
)
def test_where_a_models_artifacts_lie(
    api: Api, container: dict[str, Any], source: ArtifactSource | None
) -> None:
    api.call("CreateModel", ModelName="m", PrimaryContainer={"Image": IMAGE, **container})
    stored = api.state.models.get(api.scope, "m")
    assert stored is not None
    assert stored.value.containers[0].source == source


@cases(
    "address, uri",
    case(
        "the bucket as host",
        "https://models.s3.us-west-2.amazonaws.com/a/m.tar.gz",
        "s3://models/a/m.tar.gz",
    ),
    case(
        "the bucket in the path",
        "https://s3.us-west-2.amazonaws.com/models/a/m.tar.gz",
        "s3://models/a/m.tar.gz",
    ),
    case("no region", "https://models.s3.amazonaws.com/m.tar.gz", "s3://models/m.tar.gz"),
    case(
        "no region, in the path", "https://s3.amazonaws.com/models/m.tar.gz", "s3://models/m.tar.gz"
    ),
    case(
        "the old form of a region",
        "https://models.s3-eu-west-1.amazonaws.com/m.tar.gz",
        "s3://models/m.tar.gz",
    ),
    case(
        "both protocols, and a bucket with a dot",
        "https://a.b.s3.dualstack.us-gov-west-1.amazonaws.com/m.tar.gz",
        "s3://a.b/m.tar.gz",
    ),
    case("China", "https://models.s3.cn-north-1.amazonaws.com.cn/m.tar.gz", "s3://models/m.tar.gz"),
    case(
        "letters that are escaped",
        "https://models.s3.amazonaws.com/some%20where/w%C3%A4ights.tar.gz",
        "s3://models/some where/wäights.tar.gz",
    ),
)
def test_web_addresses_of_s3_name_objects_of_the_platforms_store(
    api: Api, address: str, uri: str
) -> None:
    api.call(
        "CreateModel", ModelName="m", PrimaryContainer={"Image": IMAGE, "ModelDataUrl": address}
    )
    stored = api.state.models.get(api.scope, "m")
    assert stored is not None
    assert stored.value.containers[0].source == ArtifactSource(uri=uri, kind=SourceKind.ARCHIVE)
    shown = api.call("DescribeModel", ModelName="m")["PrimaryContainer"]
    assert shown["ModelDataUrl"] == address, "it is echoed as it was given"


def test_a_web_address_names_a_prefix_too(api: Api) -> None:
    source = {**S3_SOURCE, "S3Uri": "https://models.s3.us-west-2.amazonaws.com/a/"}
    container = {"Image": IMAGE, "ModelDataSource": {"S3DataSource": source}}
    api.call("CreateModel", ModelName="m", PrimaryContainer=container)
    stored = api.state.models.get(api.scope, "m")
    assert stored is not None
    expected = ArtifactSource(uri="s3://models/a/", kind=SourceKind.PREFIX)
    assert stored.value.containers[0].source == expected
    assert api.call("DescribeModel", ModelName="m")["PrimaryContainer"] == container


def test_one_container_in_a_list_is_the_model(api: Api) -> None:
    containers = [{"Image": IMAGE, "ContainerHostname": "only"}]
    api.call("CreateModel", ModelName="m", Containers=containers)
    assert api.call("DescribeModel", ModelName="m")["Containers"] == containers


@pytest.mark.parametrize(
    ("params", "message"),
    [
        pytest.param({}, "Exactly one of PrimaryContainer and Containers", id="no container"),
        pytest.param(
            {"PrimaryContainer": {"Image": IMAGE}, "Containers": [{"Image": IMAGE}]},
            "both were given",
            id="both forms of container",
        ),
        pytest.param({"Containers": []}, "Containers is empty", id="an empty list"),
        pytest.param({"PrimaryContainer": {}}, "PrimaryContainer.Image is required", id="no image"),
        *(
            pytest.param(
                {"PrimaryContainer": {"Image": IMAGE, "Mode": "MultiModel", **more}}, text, id=name
            )
            for name, more, text in (
                ("many models nowhere", {}, "PrimaryContainer.ModelDataUrl is required for Mode"),
                ("one archive of many", {"ModelDataUrl": "s3://b/m.tar.gz"}, "names an archive"),
                (
                    "many models as a source",
                    {"ModelDataSource": {"S3DataSource": S3_SOURCE}},
                    "ModelDataSource does not go with Mode MultiModel",
                ),
            )
        ),
        pytest.param(
            {"PrimaryContainer": {"Image": IMAGE, "MultiModelConfig": {}}},
            "MultiModelConfig is for Mode MultiModel only",
            id="a setting of many models for one",
        ),
        pytest.param(
            {"PrimaryContainer": {"ModelPackageName": "p"}},
            "PrimaryContainer.ModelPackageName is not supported",
            id="a model package",
        ),
        pytest.param(
            {
                "PrimaryContainer": {
                    "Image": IMAGE,
                    "ModelDataUrl": "s3://b/m.tar.gz",
                    "ModelDataSource": {"S3DataSource": S3_SOURCE},
                }
            },
            "exclude each other",
            id="two sources",
        ),
        pytest.param(
            {"PrimaryContainer": {"Image": IMAGE, "ModelDataUrl": "s3://b/folder/"}},
            "must name one .tar.gz object",
            id="a folder as archive",
        ),
        pytest.param(
            {"PrimaryContainer": {"Image": IMAGE, "ModelDataUrl": "s3://bucket-only"}},
            "names no object",
            id="a bucket without key",
        ),
        *(
            pytest.param(
                {"PrimaryContainer": {"Image": IMAGE, "ModelDataUrl": url}}, message, id=label
            )
            for label, url, message in (
                ("a host that is not S3's", "https://host/b/m.tar.gz", "Give it as s3://"),
                (
                    "a host that ends like S3's",
                    "https://b.s3.us-west-2.amazonaws.com.evil.example/m.tar.gz",
                    "Give it as s3://",
                ),
                (
                    "another user's host before S3's",
                    "https://evil.example@s3.amazonaws.com/b/m.tar.gz",
                    "Give it as s3://",
                ),
                ("a port", "https://b.s3.amazonaws.com:444/m.tar.gz", "Give it as s3://"),
                ("a signed address", "https://b.s3.amazonaws.com/m?X-Amz-Date=1", "Give it as"),
                ("a line's end in a key", "https://b.s3.amazonaws.com/m%0Ax", "Give it as s3://"),
                ("a bucket's address alone", "https://b1b.s3.amazonaws.com/", "names no object"),
                ("S3 alone", "https://s3.us-west-2.amazonaws.com/", "names no object"),
                ("a bucket by path alone", "https://s3.amazonaws.com/b", "names no object"),
                ("a folder's address", "https://b1b.s3.amazonaws.com/x/", "one .tar.gz object"),
            )
        ),
        pytest.param(
            {
                "PrimaryContainer": {
                    "Image": IMAGE,
                    "ModelDataSource": {"S3DataSource": {**S3_SOURCE, "S3Uri": "s3://b/k"}},
                }
            },
            'must end with "/"',
            id="a prefix without slash",
        ),
        pytest.param(
            {
                "PrimaryContainer": {
                    "Image": IMAGE,
                    "ModelDataSource": {"S3DataSource": {**S3_SOURCE, "S3DataType": "S3Object"}},
                }
            },
            'must not end with "/"',
            id="an object with slash",
        ),
        pytest.param(
            {
                "PrimaryContainer": {
                    "Image": IMAGE,
                    "ModelDataSource": {"S3DataSource": {**S3_SOURCE, "CompressionType": "Gzip"}},
                }
            },
            "CompressionType Gzip does not go with S3DataType S3Prefix",
            id="a compressed prefix",
        ),
        pytest.param(
            {
                "PrimaryContainer": {
                    "Image": IMAGE,
                    "ModelDataSource": {
                        "S3DataSource": {**S3_SOURCE, "ManifestS3Uri": "s3://b/manifest"}
                    },
                }
            },
            "S3DataSource.ManifestS3Uri is not supported",
            id="a manifest",
        ),
        pytest.param(
            {
                "PrimaryContainer": {
                    "Image": IMAGE,
                    "Environment": {f"K{n}": "x" * 1000 for n in range(40)},
                }
            },
            "at most 32768 are allowed",
            id="a large environment",
        ),
        pytest.param(
            {"PrimaryContainer": {"Image": IMAGE, "Environment": {"A": "\ud800"}}},
            "'PrimaryContainer.Environment.A' is not valid Unicode",
            id="half a character",
        ),
        pytest.param(
            {"PrimaryContainer": {"Image": IMAGE}, "EnableNetworkIsolation": True},
            "EnableNetworkIsolation=true is not supported",
            id="network isolation",
        ),
        pytest.param(
            {"PrimaryContainer": {"Image": IMAGE}, "Tags": [{"Key": "k", "Value": "v"}] * 2},
            '"k" was given twice',
            id="a tag twice",
        ),
        pytest.param(
            {"PrimaryContainer": {"Image": IMAGE}, "Tags": [{"Key": "AWS:x", "Value": ""}]},
            "which is reserved",
            id="a reserved tag",
        ),
    ],
)
def test_a_model_that_cannot_be_is_refused(api: Api, params: dict[str, Any], message: str) -> None:
    assert message in api.refusal("CreateModel", ModelName="m", **params)
    assert api.call("ListModels")["Models"] == []


def test_a_name_is_taken_in_any_case(api: Api) -> None:
    api.make.model("llama")
    text = api.refusal("CreateModel", ModelName="Llama", PrimaryContainer={"Image": IMAGE})
    assert text == f'Cannot create already existing model "{ARN}model/llama".'


def test_another_account_or_region_has_names_of_its_own(api: Api) -> None:
    scopes = [
        Scope(account, region)
        for account in ("123456789012", "210987654321")
        for region in ("us-west-2", "eu-central-1")
    ]
    for scope in scopes:
        api.call_as(scope, "CreateModel", ModelName="m", PrimaryContainer={"Image": scope.region})
    api.call_as(scopes[0], "DeleteModel", ModelName="m")
    with pytest.raises(ServiceError, match="Could not find model"):
        api.call_as(scopes[0], "DescribeModel", ModelName="m")
    for scope in scopes[1:]:
        shown = api.call_as(scope, "DescribeModel", ModelName="m")
        assert shown["PrimaryContainer"]["Image"] == scope.region
        assert scope.account in shown["ModelArn"]


def tags(**given: str) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in given.items()]


@cases(
    "kind, name",
    case("model", "model", "m"),
    case("endpoint configuration", "endpoint-config", "e-config"),
    case("endpoint", "endpoint", "e"),
    case("component", "inference-component", "base"),
)
def test_every_resource_can_be_tagged(api: Api, kind: str, name: str) -> None:
    api.make.model()
    api.make.endpoint()
    api.make.component()
    arn = f"{ARN}{kind}/{name}"
    assert api.call("AddTags", ResourceArn=arn, Tags=tags(a="1", b="2"))["Tags"] == tags(
        a="1", b="2"
    )
    assert api.call("AddTags", ResourceArn=arn, Tags=tags(b="3"))["Tags"] == tags(a="1", b="3")
    api.call("DeleteTags", ResourceArn=arn, TagKeys=["a", "never there"])
    assert api.call("ListTags", ResourceArn=arn) == {"Tags": tags(b="3")}
    api.call("DeleteTags", ResourceArn=arn, TagKeys=["b"])
    assert api.call("ListTags", ResourceArn=arn) == {"Tags": []}


def test_tags_of_a_creation_go_with_the_resource(api: Api) -> None:
    api.make.model(Tags=tags(team="nlp"))
    arn = ARN + "model/m"
    assert api.call("ListTags", ResourceArn=arn)["Tags"] == tags(team="nlp")
    api.call("DeleteModel", ModelName="m")
    api.make.model()
    assert api.call("ListTags", ResourceArn=arn)["Tags"] == []


@cases(
    "params, message",
    case("no model", {"ResourceArn": ARN + "model/gone"}, "Could not find model"),
    case(
        "another account's",
        {"ResourceArn": "arn:aws:sagemaker:us-west-2:210987654321:model/m"},
        "Could not find model",
    ),
    case("another kind", {"ResourceArn": ARN + "training-job/t"}, "is not a resource"),
    case("no name", {"ResourceArn": ARN + "model"}, "Could not find model"),
    case("a token of nothing", {"ResourceArn": ARN + "model/m", "NextToken": "x"}, "NextToken"),
)
def test_tags_of_what_is_not_there(api: Api, params: dict[str, Any], message: str) -> None:
    api.make.model()
    assert message in api.refusal("ListTags", **params)


def test_a_resource_has_at_most_50_tags(api: Api) -> None:
    api.make.model(Tags=tags(**{f"k{n}": "" for n in range(50)}))
    arn = ARN + "model/m"
    assert "at most 50" in api.refusal("AddTags", ResourceArn=arn, Tags=tags(one_more=""))
    assert len(api.call("ListTags", ResourceArn=arn)["Tags"]) == 50


def test_the_caller_is_an_assumed_role(api: Api) -> None:
    identity = api.call("GetCallerIdentity", "sts")
    assert identity["Account"] == "123456789012"
    assert identity["Arn"] == (
        "arn:aws:sts::123456789012:assumed-role/HostelryExecutionRole/hostelry"
    )


def test_the_role_of_the_caller_is_found_and_no_other(api: Api) -> None:
    role = api.call("GetRole", "iam", RoleName="HostelryExecutionRole")["Role"]
    assert role["Arn"] == "arn:aws:iam::123456789012:role/HostelryExecutionRole"
    with pytest.raises(ServiceError, match="role with name Admin cannot be found") as caught:
        api.call("GetRole", "iam", RoleName="Admin")
    assert (caught.value.code, caught.value.http_status) == ("NoSuchEntity", 404)


def test_an_operation_that_is_not_there_is_named(api: Api) -> None:
    with pytest.raises(ServiceError) as caught:
        api.call("ListTrainingJobs")
    assert caught.value.code == "UnknownOperationException"
    assert caught.value.http_status == 400
    assert caught.value.message.startswith("Hostelry does not implement sagemaker:ListTrainingJobs")
