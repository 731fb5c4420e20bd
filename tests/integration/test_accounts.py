"""Two accounts with the same names everywhere, and users of one account, on a real platform."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest
from botocore.exceptions import ClientError
from botocore.model import Shape
from tests.cases import case, cases
from tests.integration.accounts_rig import (
    ALLOW_ALL,
    NAME,
    Json,
    Tenant,
    fill,
    make_account,
    make_user,
)
from tests.integration.batch_rig import IMAGE, packed
from tests.integration.lmi_rig import byte_model
from tests.integration.platform import Platform, until
from tests.unit.permissions.policy_cases import PolicyCase, load_policy_cases

from hostelry.api.operations import READS, SERVED

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("accounts") / "home") as found:
        yield found


@pytest.fixture(scope="module")
def tenants(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tenant, Tenant]:
    """Two accounts, each of which has one of everything, with a ready model."""
    model = packed(byte_model(tmp_path_factory.mktemp("model")))
    both = make_account(platform, "team-a"), make_account(platform, "team-b")
    for tenant in both:
        fill(tenant, model)
    for tenant in both:
        sagemaker = tenant.client("sagemaker")

        def status(sagemaker: Any = sagemaker) -> bool:
            found = sagemaker.describe_inference_component(InferenceComponentName=NAME)
            assert found["InferenceComponentStatus"] != "Failed", found.get("FailureReason")
            return bool(found["InferenceComponentStatus"] == "InService")

        until(status, "the component is in service", 90)
        answer = tenant.client("sagemaker-runtime").invoke_endpoint(
            EndpointName=NAME,
            InferenceComponentName=NAME,
            ContentType="application/json",
            Body=json.dumps({"inputs": "a", "parameters": {"max_new_tokens": 2}}),
            CustomAttributes=tenant.marker,
        )
        assert answer["Body"].read()
    return both


def given(shape: Shape | None, names: Mapping[str, Any]) -> Json | None:
    """The required members of an input, from `names`. None if one is not known."""
    members = [] if shape is None else list(shape.required_members)
    if not set(members) <= names.keys():
        return None
    return {it: names[it] for it in members}


def names_of(tenant: Tenant, other: Tenant) -> Json:
    """Values of members that name the other account's resources, or the same names."""
    region, account = tenant.platform.env()["AWS_REGION"], other.account
    return {
        "ResourceArn": f"arn:aws:sagemaker:{region}:{account}:endpoint/{NAME}",
        "PolicyArn": f"arn:aws:iam::{account}:policy/{NAME}",
        "PolicySourceArn": f"arn:aws:iam::{account}:role/{NAME}",
        "RoleArn": f"arn:aws:iam::{account}:role/{NAME}",
        "RoleSessionName": NAME,
        "TopicArn": f"arn:aws:sns:{region}:{account}:{NAME}",
        "QueueUrl": f"{tenant.platform.env()['AWS_ENDPOINT_URL']}/{account}/{NAME}",
        "KeyId": f"alias/{NAME}",
        "SecretId": f"arn:aws:secretsmanager:{region}:{account}:secret:{NAME}-abcdef",
        "QueueName": NAME,
        "logGroupName": NAME,
        "logStreamName": NAME,
        "DashboardName": NAME,
        "Name": NAME,
        "Rule": NAME,
        "ResourceARN": f"arn:aws:events:{region}:{account}:rule/{NAME}",
        "ActionNames": ["s3:GetObject"],
        "ServiceNamespace": "sagemaker",
        "PolicyName": NAME,
        "UserName": NAME,
        **dict.fromkeys(
            (
                "ModelName", "EndpointName", "EndpointConfigName", "InferenceComponentName",
                "RoleName", "InstanceProfileName", "TransformJobName", "JobName",
            ),
            NAME,
        ),
    }  # fmt: skip


def read_everything(tenant: Tenant, other: Tenant) -> Iterator[tuple[str, str]]:
    """The text of the answer to each operation that reads, with the other account's names."""
    names = names_of(tenant, other)
    for service, operations in SERVED.items():
        client = tenant.client(service)
        methods = {api: method for method, api in client.meta.method_to_api_mapping.items()}
        for operation in operations:
            if not operation.startswith((*READS, "Receive")) or operation not in methods:
                continue
            shape = client.meta.service_model.operation_model(operation).input_shape
            params = given(shape, names)
            if params is None:
                continue
            try:
                answer = getattr(client, methods[operation])(**params)
            except ClientError as error:
                yield f"{service}:{operation}", str(error)
                continue
            answer.pop("ResponseMetadata")
            yield f"{service}:{operation}", json.dumps(answer, default=str)


def test_an_account_sees_nothing_of_another_with_the_same_names(
    tenants: tuple[Tenant, Tenant],
) -> None:
    for tenant, other in (tenants, tenants[::-1]):
        texts = dict(read_everything(tenant, other))
        assert len(texts) > 90
        leaks = {name: text for name, text in texts.items() if other.marker in text}
        assert not leaks
        own = [name for name, text in texts.items() if tenant.marker in text]
        assert len(own) >= 8, "an account reads what it has made itself"


@cases(
    "service, operation, params, codes",
    case("a bucket", "s3", "list_objects_v2", {"Bucket": "{bucket}"}, {"AccessDenied"}),
    case("an object", "s3", "get_object", {"Bucket": "{bucket}", "Key": "model.tar.gz"},
        {"AccessDenied"}),
    case("a copy of an object", "s3", "copy_object",
        {"Bucket": "{own}", "Key": "k", "CopySource": "{bucket}/model.tar.gz"}, {"AccessDenied"}),
    case("a name of a bucket", "s3", "create_bucket", {"Bucket": "{bucket}"},
        {"BucketAlreadyExists"}),
    case("an assumed role", "sts", "assume_role",
        {"RoleArn": "arn:aws:iam::{account}:role/same", "RoleSessionName": "session"},
        {"AccessDenied"}),
    case("a message of a queue", "sqs", "receive_message", {"QueueUrl": "{url}/{account}/same"},
        {"AWS.SimpleQueueService.NonExistentQueue", "AccessDenied", "QueueDoesNotExist"}),
    case("a message to a topic", "sns", "publish",
        {"TopicArn": "arn:aws:sns:{region}:{account}:same", "Message": "m"},
        {"NotFound", "AuthorizationError", "AccessDenied"}),
)  # fmt: skip
def test_an_account_reaches_nothing_of_another(
    tenants: tuple[Tenant, Tenant],
    service: str,
    operation: str,
    params: Json,
    codes: set[str],
) -> None:
    for tenant, other in (tenants, tenants[::-1]):
        env = tenant.platform.env()
        values = {
            "bucket": other.bucket,
            "own": tenant.bucket,
            "account": other.account,
            "region": env["AWS_REGION"],
            "url": env["AWS_ENDPOINT_URL"],
        }
        asked = {name: value.format(**values) for name, value in params.items()}
        assert tenant.refused(service, operation, **asked) in codes


def test_buckets_and_models_are_listed_for_their_account(tenants: tuple[Tenant, Tenant]) -> None:
    for tenant in tenants:
        found = tenant.client("s3").list_buckets()["Buckets"]
        assert [it["Name"] for it in found] == [tenant.bucket]


def test_a_model_in_another_accounts_bucket_is_never_read(tenants: tuple[Tenant, Tenant]) -> None:
    tenant, other = tenants
    sagemaker = tenant.client("sagemaker")
    sagemaker.create_inference_component(
        InferenceComponentName="thief",
        EndpointName=NAME,
        VariantName="AllTraffic",
        Specification={
            "Container": {"Image": IMAGE, "ArtifactUrl": f"s3://{other.bucket}/model.tar.gz"},
            "ComputeResourceRequirements": {
                "MinMemoryRequiredInMb": 512,
                "NumberOfCpuCoresRequired": 1,
            },
        },
        RuntimeConfig={"CopyCount": 1},
    )

    def failed() -> str | None:
        found = sagemaker.describe_inference_component(InferenceComponentName="thief")
        return found.get("FailureReason") if found["InferenceComponentStatus"] == "Failed" else None

    reason = until(failed, "the component fails", 60)
    assert "denied" in reason.lower() or "403" in reason
    sagemaker.delete_inference_component(InferenceComponentName="thief")


def make_openai_key(tenant: Tenant, user: str) -> str:
    """A new OpenAI key of a user."""
    asked = ("--account", tenant.account, "--user", user, "--openai")
    return str(tenant.platform.accounts("keys", "create", *asked)["secret"])


@contextmanager
def openai_client(platform: Platform, key: str) -> Iterator[openai.OpenAI]:
    """OpenAI's client with a key."""
    with openai.OpenAI(
        api_key=key, base_url=platform.env()["OPENAI_BASE_URL"], max_retries=0
    ) as client:
        yield client


INVOKE = {"Effect": "Allow", "Action": "sagemaker:InvokeEndpoint*", "Resource": "*"}


def test_an_openai_key_calls_the_models_of_its_user_alone(tenants: tuple[Tenant, Tenant]) -> None:
    tenant, _ = tenants
    make_user(tenant, "caller", INVOKE)
    make_user(tenant, "reader")
    key = make_openai_key(tenant, "caller")
    with openai_client(tenant.platform, key) as client:
        assert [it.id for it in client.models.list()] == [NAME]
        answer = client.completions.create(model=NAME, prompt="a", max_tokens=2)
        assert answer.choices
    other = make_openai_key(tenant, "reader")
    with openai_client(tenant.platform, other) as client:
        assert list(client.models.list()) == []
        with pytest.raises(openai.NotFoundError) as hidden:
            client.completions.create(model=NAME, prompt="a", max_tokens=2)
        with pytest.raises(openai.NotFoundError) as missing:
            client.completions.create(model="nope", prompt="a", max_tokens=2)
    assert hidden.value.code == missing.value.code == "model_not_found"
    assert str(hidden.value).replace(NAME, "nope") == str(missing.value)


def test_a_user_does_what_its_policies_allow_until_its_key_is_revoked(
    tenants: tuple[Tenant, Tenant],
) -> None:
    tenant, _ = tenants
    describe = {"Effect": "Allow", "Action": "sagemaker:Describe*", "Resource": "*"}
    denied = {**INVOKE, "Effect": "Deny"}
    user = make_user(tenant, "limited", describe, INVOKE)
    asked = {
        "EndpointName": NAME,
        "InferenceComponentName": NAME,
        "ContentType": "application/json",
        "Body": json.dumps({"inputs": "a", "parameters": {"max_new_tokens": 1}}),
    }
    assert user.client("sagemaker").describe_endpoint(EndpointName=NAME)
    assert user.client("sagemaker-runtime").invoke_endpoint(**asked)["Body"].read()
    assert user.refused("sagemaker", "delete_endpoint", EndpointName=NAME) == (
        "AccessDeniedException"
    )
    assert user.refused("sagemaker", "list_models") == "AccessDeniedException"
    assert user.refused("s3", "list_buckets") == "AccessDenied"
    assert user.refused("iam", "list_users") == "AccessDenied"
    iam = tenant.client("iam")
    document = json.dumps({"Version": "2012-10-17", "Statement": [describe, denied]})
    iam.put_user_policy(UserName="limited", PolicyName="own", PolicyDocument=document)

    def is_denied() -> bool:
        try:
            user.client("sagemaker-runtime").invoke_endpoint(**asked)
        except ClientError as error:
            return "explicit deny in an identity-based policy" in str(error)
        return False

    until(is_denied, "the gateway knows the new policy", 5)
    (key,) = iam.list_access_keys(UserName="limited")["AccessKeyMetadata"]
    iam.update_access_key(UserName="limited", AccessKeyId=key["AccessKeyId"], Status="Inactive")
    until(
        lambda: user_code(user) == "UnrecognizedClientException", "the gateway refuses the key", 5
    )


def user_code(user: Tenant) -> str:
    """The code of the error that answers DescribeEndpoint, or an empty text."""
    try:
        user.client("sagemaker").describe_endpoint(EndpointName=NAME)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def test_a_closed_account_is_refused_everywhere(platform: Platform) -> None:
    tenant = make_account(platform, "closing")
    tenant.client("s3").create_bucket(Bucket=tenant.bucket)
    platform.accounts("accounts", "close", tenant.account)
    until(lambda: user_code(tenant) == "UnrecognizedClientException", "the account is closed", 5)

    def is_refused() -> bool:
        try:
            tenant.client("s3").list_buckets()
        except ClientError as error:
            return bool(error.response["Error"]["Code"] == "InvalidAccessKeyId")
        return False

    until(is_refused, "the S3 port refuses it", 5)
    platform.accounts("accounts", "open", tenant.account)
    until(lambda: user_code(tenant) == "ValidationException", "the account is open", 5)


def test_the_platforms_pages_are_the_operators(tenants: tuple[Tenant, Tenant]) -> None:
    tenant, _ = tenants
    user = make_user(tenant, "curious", json.loads(ALLOW_ALL)["Statement"][0])
    key = make_openai_key(tenant, "curious")
    url = tenant.platform.env()["AWS_ENDPOINT_URL"]
    for path in ("/metrics", "/metrics/copies", "/traces"):
        answer = httpx.get(
            f"{url}{path}", headers={"Authorization": f"Bearer {key}"}, trust_env=False
        )
        assert answer.status_code in (401, 403), path
    assert user.account == tenant.account


def simulate(iam: Any, given: PolicyCase) -> str:
    """The decision of SimulateCustomPolicy on a case."""
    boundary = (
        {} if given.boundary is None else {"PermissionsBoundaryPolicyInputList": given.boundary}
    )
    entries = [
        {"ContextKeyName": name, "ContextKeyType": "stringList", "ContextKeyValues": list(values)}
        for name, values in given.context.items()
    ]
    answer = iam.simulate_custom_policy(
        PolicyInputList=list(given.identity),
        ActionNames=[given.action],
        ResourceArns=[given.resource],
        ContextEntries=entries,
        **boundary,
    )
    return str(answer["EvaluationResults"][0]["EvalDecision"])


def is_plain(given: PolicyCase) -> bool:
    """Whether identity policies and a boundary alone decide."""
    has_more = given.resource_policy is not None or given.session is not None or given.is_decisive
    is_limited = given.identity and not given.caller.is_root
    return bool(is_limited and not has_more and given.owner == given.caller.account)


def test_boto3_gets_the_decisions_that_aws_documents(platform: Platform) -> None:
    iam = platform.boto3("iam")
    plain = [it for it in load_policy_cases() if is_plain(it)]
    assert len(plain) >= 300
    wrong = {it.name: found for it in plain if (found := simulate(iam, it)) != it.expected}
    assert not wrong
