"""Random parameters for any operation, often at the limits of their shapes."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from hostelry.aws.constraints import broken_demands
from hostelry.domain.scope import Scope

HERE = Scope("123456789012", "us-west-2")
ROLE = f"arn:aws:iam::{HERE.account}:role/HostelryExecutionRole"
TRUSTED = f"arn:aws:iam::{HERE.account}:role/r"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": ["scheduler.amazonaws.com", "events.amazonaws.com"]},
            "Action": "sts:AssumeRole",
        }
    ],
}
OF = f"{HERE.region}:{HERE.account}"
TOPIC, QUEUE, DEAD = f"arn:aws:sns:{OF}:t", f"arn:aws:sqs:{OF}:q", f"arn:aws:sqs:{OF}:dead"
Q_URL = f"http://127.0.0.1:8787/{HERE.account}/q"
KEY_ID = "1234abcd-12ab-34cd-56ef-1234567890ab"
COMPONENT = "inference-component/base"
# JSON documents that some member takes as text. Each is also tried for members of other kinds.
DOCUMENTS: tuple[Any, ...] = (
    {"deadLetterTargetArn": DEAD, "maxReceiveCount": 3},
    {"redrivePermission": "byQueue", "sourceQueueArns": [QUEUE]},
    {"a": ["x", {"prefix": "p"}, {"numeric": [">", 1, "<=", 5]}], "b": [{"exists": True}]},
    {"a": [{"anything-but": {"suffix": ["x"]}}, {"cidr": "10.0.0.0/8"}, {"wildcard": "a*"}]},
    {"source": ["s"], "detail": {"$or": [{"x": [1]}, {"y": [{"equals-ignore-case": "q"}]}]}},
    {"healthyRetryPolicy": {"numRetries": 3, "minDelayTarget": 1, "maxDelayTarget": 9}},
    {"http": {"defaultHealthyRetryPolicy": {"numRetries": 3, "backoffFunction": "linear"}}},
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:Get*"],
                "Resource": "*",
                "Condition": {"NumericLessThan": {"aws:x": 5}, "Bool": {"aws:y": "true"}},
            }
        ],
    },
    {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"AWS": "*"}}},
    {
        "widgets": [
            {
                "type": "metric",
                "x": 0,
                "y": 0,
                "width": 6,
                "height": 6,
                "properties": {"metrics": [["N", "M"]], "region": "us-west-2", "period": 60},
            }
        ]
    },
    {"id": "1", "source": "s", "detail-type": "d", "detail": {"x": 1}, "time": "2026-01-01"},
    {"default": "text", "http": "other"},
    {"version": "1.0", "queryDate": "2026-01-01T00:00:00", "recentDatapoints": [1, None]},
    {"EndpointName": "e"},
    TRUST,
)
EVENT = {
    "id": "1",
    "account": HERE.account,
    "source": "s",
    "time": "2026-01-01T00:00:00Z",
    "region": "us-west-2",
    "resources": [],
    "detail-type": "d",
    "detail": {"x": 1},
}
ODD: tuple[Any, ...] = (
    *(5, -1, 0.5, 1e308, 10**28, True, None, "", "x", "9" * 400, "\x00", "NaN", "1e999"),
    *([], {}, [[]], [None], [5], {"a": 5}, {"a": {}}, [{}], ["x", 5], {"": [None]}),
)
TEXTS = (
    *("m", "c", "e", "base", "q", "t", "dead", "r", "s", "g", "a", "k", "d", "default", "main"),
    *("", "x", "\x00", "\u00e9", "9" * 30, "-1", "0", "1e999", "NaN", "5", "300", "a" * 300),
    *(ROLE, TRUSTED, TOPIC, QUEUE, DEAD, KEY_ID, "alias/k", "HostelryExecutionRole", "*", "g/s"),
    *(f"arn:aws:sagemaker:{OF}:{it}" for it in ("model/m", "endpoint/e", COMPONENT)),
    *(f"http://127.0.0.1:8787/{HERE.account}/{it}" for it in ("q", "dead")),
    *(f"arn:aws:events:{OF}:rule/r", f"arn:aws:scheduler:{OF}:schedule-group/g"),
    *(f"arn:aws:kms:{OF}:key/{KEY_ID}", f"arn:aws:logs:{OF}:log-group:g:*"),
    *(f"arn:aws:cloudwatch:{OF}:alarm:a", f"{TOPIC}:{KEY_ID}", "http://trusted/x"),
    *("arn:aws:scheduler:::aws-sdk:sagemaker:deleteEndpoint", COMPONENT, "endpoint/e/variant/main"),
    *(
        "rate(5 minutes)",
        "cron(0 12 * * ? *)",
        "at(2030-01-01T00:00:00)",
        "rate(9" + "9" * 30 + " days)",
    ),
    *("cron(0 0 31 2 ? 2199)", "at(9999-12-31T23:59:59)", "at(0001-01-01T00:00:00)", "UTC"),
    *("m1 + 1", "SEARCH('{N} M', 'Sum')", "SELECT MAX(M) FROM N", "ALARM(a)", "p99.9", "TM(1%:9%)"),
    *(
        "1/0",
        "10 ** 400 * m1",
        "RATE(m1) + TIME_SERIES(9999999999)",
        "p999",
        "PR(1e400:)",
        "WM(5:1)",
    ),
    *(
        '{ $.a > 1e999 && $.b = "x" }',
        "[a, b=5*, ...]",
        "%a.b%",
        "<a> says <b>",
        '{"x": <a>}',
        "$.detail.x",
    ),
    *(
        "2026-01-01T00:00:00Z",
        "99999-01-01",
        "https://h/k",
        "s3://b/k",
        "/metrics",
        "mig-1g.5gb",
        "eyJ4IjowfQ==",
    ),
)
ATTRIBUTES = (
    *("RedrivePolicy", "RedriveAllowPolicy", "Policy", "DeliveryPolicy", "FilterPolicy", "All"),
    *("FilterPolicyScope", "DelaySeconds", "VisibilityTimeout", "MessageRetentionPeriod"),
    *("DisplayName", "SignatureVersion", "RawMessageDelivery", "KmsMasterKeyId", "a", "AWS"),
)
BITS = {"integer": 31, "long": 63}
TIMES = (
    0.0,
    -1.0,
    0.5,
    1e9,
    1.7e9,
    4e9,
    1e11,
    253402300799.0,
    253402300800.0,
    -62135596800.0,
    1e15,
    -1e12,
    1e18,
    1e300,
    -1e300,
)
SCALARS: Mapping[str, tuple[Any, ...]] = {
    "boolean": (True, False),
    "blob": (b"", b"x", b"\x00" * 4096),
    "timestamp": TIMES,
}
NUMBERS = (0.0, -1.0, 0.1, 5.0, 1e18, 1e300, -1e300, 5e-324)
# Usual values of members that no earlier call or answer has named.
USUAL: Mapping[str, tuple[str, ...]] = {
    "Endpoint": (QUEUE, "http://trusted/x"),
    "KeyId": ("alias/k",),
    "SecretId": ("s",),
    "TargetArn": (TOPIC,),
    "AlarmNames": ("a",),
    "PolicySourceArn": (TRUSTED,),
    "ResourceArn": (TOPIC, f"arn:aws:events:{OF}:rule/r", f"arn:aws:sagemaker:{OF}:endpoint/e"),
    "ResourceARN": (f"arn:aws:cloudwatch:{OF}:alarm:a", f"arn:aws:events:{OF}:rule/r"),
}
STATISTIC = {
    "Namespace": "N",
    "MetricName": "M",
    "StartTime": 1.7499e9,
    "EndTime": 1.75e9,
    "Period": 3600,
    "Statistics": ["Sum"],
}
QUERY = {
    "StartTime": 1.7499e9,
    "EndTime": 1.75e9,
    "MetricDataQueries": [
        {
            "Id": "m1",
            "MetricStat": {
                "Metric": {"Namespace": "N", "MetricName": "M"},
                "Period": 3600,
                "Stat": "Sum",
            },
        },
        {"Id": "e1", "Expression": "m1 + 1"},
    ],
}
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": COMPONENT,
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
    "MinCapacity": 1,
    "MaxCapacity": 3,
}
# Calls that create a resource of each kind, so that later calls find resources.
MADE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("sagemaker", "CreateModel", {"ModelName": "m", "PrimaryContainer": {"Image": "i"}}),
    (
        "sagemaker",
        "CreateEndpointConfig",
        {
            "EndpointConfigName": "c",
            "ExecutionRoleArn": ROLE,
            "ProductionVariants": [
                {"VariantName": "main", "InstanceType": "ml.g5.12xlarge", "InitialInstanceCount": 1}
            ],
        },
    ),
    ("sagemaker", "CreateEndpoint", {"EndpointName": "e", "EndpointConfigName": "c"}),
    (
        "sagemaker",
        "CreateInferenceComponent",
        {
            "InferenceComponentName": "base",
            "EndpointName": "e",
            "Specification": {
                "ModelName": "m",
                "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 1024},
            },
        },
    ),
    ("sqs", "CreateQueue", {"QueueName": "dead"}),
    ("sqs", "CreateQueue", {"QueueName": "q"}),
    *(
        ("sqs", "SetQueueAttributes", {"QueueUrl": url, "Attributes": {name: json.dumps(document)}})
        for url, name, document in (
            (Q_URL.replace("/q", "/dead"), "RedriveAllowPolicy", DOCUMENTS[1]),
            (Q_URL, "RedrivePolicy", DOCUMENTS[0]),
            (Q_URL, "Policy", DOCUMENTS[8]),
        )
    ),
    ("sns", "CreateTopic", {"Name": "t"}),
    (
        "sns",
        "SetTopicAttributes",
        {
            "TopicArn": TOPIC,
            "AttributeName": "DeliveryPolicy",
            "AttributeValue": json.dumps(DOCUMENTS[6]),
        },
    ),
    ("sns", "Publish", {"TopicArn": TOPIC, "Message": "x"}),
    ("sns", "Subscribe", {"TopicArn": TOPIC, "Protocol": "sqs", "Endpoint": QUEUE}),
    ("events", "PutRule", {"Name": "r", "EventPattern": '{"source": ["s"]}'}),
    (
        "iam",
        "CreateRole",
        {"RoleName": "r", "AssumeRolePolicyDocument": json.dumps(TRUST)},
    ),
    ("scheduler", "CreateScheduleGroup", {"Name": "g"}),
    (
        "scheduler",
        "CreateSchedule",
        {
            "Name": "s",
            "ScheduleExpression": "rate(5 minutes)",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {"Arn": QUEUE, "RoleArn": TRUSTED, "Input": "{}"},
        },
    ),
    (
        "iam",
        "CreatePolicy",
        {"PolicyName": "p", "PolicyDocument": json.dumps(DOCUMENTS[7])},
    ),
    (
        "iam",
        "PutRolePolicy",
        {"RoleName": "r", "PolicyName": "p", "PolicyDocument": json.dumps(DOCUMENTS[7])},
    ),
    (
        "iam",
        "SimulatePrincipalPolicy",
        {"PolicySourceArn": TRUSTED, "ActionNames": ["s3:GetObject"]},
    ),
    (
        "events",
        "TestEventPattern",
        {"EventPattern": '{"source": ["s"]}', "Event": json.dumps(EVENT)},
    ),
    ("events", "PutTargets", {"Rule": "r", "Targets": [{"Id": "1", "Arn": QUEUE}]}),
    ("cloudwatch", "PutDashboard", {"DashboardName": "d", "DashboardBody": '{"widgets": []}'}),
    ("sqs", "SendMessage", {"QueueUrl": Q_URL, "MessageBody": "x"}),
    ("secretsmanager", "CreateSecret", {"Name": "s", "SecretString": "x"}),
    ("logs", "CreateLogGroup", {"logGroupName": "g"}),
    ("logs", "CreateLogStream", {"logGroupName": "g", "logStreamName": "s"}),
    (
        "logs",
        "PutLogEvents",
        {
            "logGroupName": "g",
            "logStreamName": "s",
            "logEvents": [{"timestamp": 1_750_000_000_000, "message": '{"a": 5}'}],
        },
    ),
    (
        "cloudwatch",
        "PutMetricAlarm",
        {
            "AlarmName": "a",
            "Namespace": "N",
            "MetricName": "M",
            "Statistic": "Sum",
            "Period": 60,
            "EvaluationPeriods": 1,
            "Threshold": 1.0,
            "ComparisonOperator": "GreaterThanThreshold",
        },
    ),
    ("cloudwatch", "PutCompositeAlarm", {"AlarmName": "b", "AlarmRule": "ALARM(a)"}),
    ("cloudwatch", "GetMetricStatistics", STATISTIC),
    ("cloudwatch", "GetMetricData", QUERY),
    (
        "cloudwatch",
        "PutMetricData",
        {"Namespace": "N", "MetricData": [{"MetricName": "M", "Value": 1.0}]},
    ),
)


def altered(document: Any, random: Random) -> Any:
    """`document` with one part of it replaced."""
    if not document or not isinstance(document, list | dict) or random.random() < 0.2:
        return random.choice(ODD)
    if isinstance(document, dict):
        name = random.choice(sorted(document))
        return {**document, name: altered(document[name], random)}
    at = random.randrange(len(document))
    return [*document[:at], altered(document[at], random), *document[at + 1 :]]


def document_text(random: Random) -> str:
    """A document, valid or with a part of another type."""
    document = random.choice(DOCUMENTS)
    return json.dumps(altered(document, random) if random.random() < 0.8 else document)


def changed_text(text: str, random: Random) -> str:
    """`text` with a part of its document replaced. Other texts stay unchanged."""
    try:
        return json.dumps(altered(json.loads(text), random))
    except ValueError:
        return text


class Draw:
    """Random parameters that fit a shape, often at its limits."""

    def __init__(self, random: Random, known: Mapping[str, Sequence[str | bytes]]) -> None:
        self._random = random
        self._known = known  # values from earlier calls and answers, by member name

    def changed(self, shape: Shape, value: Any, name: str = "") -> Any:
        """`value` with one part drawn again."""
        random = self._random
        if isinstance(shape, StructureShape) and shape.members and not shape.is_tagged_union:
            chosen = random.choice(list(value) or list(shape.members))
            if random.random() < 0.3:
                chosen = random.choice(list(shape.members))
            if chosen not in value:
                return {**value, chosen: self.of(shape.members[chosen], chosen, 2)}
            return {**value, chosen: self.changed(shape.members[chosen], value[chosen], chosen)}
        if isinstance(shape, ListShape) and value and random.random() < 0.8:
            at = random.randrange(len(value))
            return [*value[:at], self.changed(shape.member, value[at], name), *value[at + 1 :]]
        if isinstance(shape, MapShape) and value and random.random() < 0.8:
            key = random.choice(sorted(value))
            return {**value, key: self.changed(shape.value, value[key], key)}
        if isinstance(value, str) and value.startswith("{") and random.random() < 0.7:
            text = changed_text(value, random)
            return value if broken_demands(shape, text) else text
        return self.of(shape, name, 2)

    def of(self, shape: Shape, name: str = "", depth: int = 0) -> Any:
        """Any value of `shape`, for the member `name`."""
        random, kind, metadata = self._random, shape.type_name, shape.metadata
        if isinstance(shape, StructureShape):
            return self._structure(shape, depth)
        if isinstance(shape, ListShape):
            size = max(int(metadata.get("min", 0)), random.choice((0, 1, 1, 2)))
            return [self.of(shape.member, name, depth + 1) for _ in range(size)]
        if isinstance(shape, MapShape):
            names = [self._text(shape.key, "", ATTRIBUTES) for _ in range(random.choice((0, 1, 3)))]
            return {it: self.of(shape.value, it, depth + 1) for it in names}
        if kind in BITS:
            low, high = -(1 << BITS[kind]), (1 << BITS[kind]) - 1
            low, high = int(metadata.get("min", low)), int(metadata.get("max", high))
            return min(high, max(low, random.choice((low, high, 0, 1, 5, 60, 300, 86_400))))
        if name in self._known and kind in ("string", "blob") and random.random() < 0.6:
            found = random.choice(self._known[name])
            if isinstance(found, bytes) is (kind == "blob"):
                return found
        if kind == "string":
            return self._text(shape, name, TEXTS)
        return random.choice(SCALARS.get(kind, NUMBERS))

    def _structure(self, shape: StructureShape, depth: int) -> dict[str, Any]:
        random, names = self._random, list(shape.members)
        if shape.is_tagged_union:
            names = [random.choice(names)]
        else:
            share = random.choice((0.0, 0.2, 0.5, 1.0)) if depth < 4 else 0.0
            needed = shape.required_members
            names = [it for it in names if it in needed or random.random() < share]
        return {name: self.of(shape.members[name], name, depth + 1) for name in names}

    def _text(self, shape: Shape, name: str, texts: tuple[str, ...]) -> str:
        random = self._random
        choices = shape.metadata.get("enum")
        if choices:
            return str(random.choice(choices))
        if name in USUAL and random.random() < 0.7:
            return random.choice(USUAL[name])
        wants_document = name.endswith(("Policy", "Document", "Pattern", "Body", "Data", "Event"))
        if random.random() < (0.8 if wants_document else 0.1):
            text = document_text(random)
            if not broken_demands(shape, text):
                return text
        return random.choice(fitting(shape, texts) or ["x"])


@cache
def fitting(shape: Shape, texts: tuple[str, ...]) -> list[str]:
    """The `texts` that the shape allows."""
    return [it for it in texts if not broken_demands(shape, it)]
