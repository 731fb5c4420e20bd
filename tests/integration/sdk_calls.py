"""The AWS operations that an installed SageMaker SDK calls for inference.

    python -m tests.integration.sdk_calls SDK2/site-packages SDK3/site-packages

It prints rows for the table of operations in docs/sdks.md. As a call counts each use of botocore's
method for an operation, or of its paginator or waiter, on an object with the name of a client.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from botocore import xform_name
from botocore.session import Session

from hostelry.api.operations import OPERATIONS

SERVICES = (
    "sagemaker", "sagemaker-runtime", "s3", "sts", "iam", "logs", "ec2", "ecr", "kms",
    "secretsmanager", "cloudwatch", "application-autoscaling", "sns", "sqs", "ssm",
)  # fmt: skip
# Folders and modules for training, features, monitoring, pipelines, lineage, local mode, Studio.
ELSEWHERE = (
    "train", "ai_registry", "mlops", "lineage", "experiments", "model_monitor", "remote_function",
    "workflow", "feature_store", "local", "clarify", "spark", "debugger", "modules", "interactive",
    "mlflow", "tuner", "estimator", "processing", "transformer", "analytics", "lambda_helper",
    "hub", "resources", "bedrock", "model_card",
    "collection", "job", "automl", "amazon", "aws_batch",
    "training", "git_utils", "hyperpod", "dashboard", "studio",
)  # fmt: skip
CLIENTS = ("client", "iam", "sts", "ecr", "ec2", "logs", "sm", "s3")
BY_NAME = {
    "iam": "iam",
    "sts": "sts",
    "s3": "s3",
    "ec2": "ec2",
    "ecr": "ecr",
    "runtime": "sagemaker-runtime",
}
VIA = ("get_paginator", "get_waiter")
Operation = tuple[str, str]


def operations() -> Mapping[str, list[Operation]]:
    """(service, operation) by the method's name on a client."""
    session = Session()
    found: dict[str, list[Operation]] = {}
    for service in SERVICES:
        for operation in session.get_service_model(service).operation_names:
            found.setdefault(xform_name(operation), []).append((service, operation))
    return found


def calls(tree: ast.AST, known: Mapping[str, list[Operation]]) -> Iterator[Operation]:
    """Each (service, operation) that a function calls."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        method, client = node.func.attr, ast.unparse(node.func.value).lower()
        if method in VIA and node.args and isinstance(node.args[0], ast.Constant):
            method = str(node.args[0].value)
        if method not in known or not any(each in client for each in CLIENTS):
            continue
        named = [service for name, service in BY_NAME.items() if name in client]
        services = dict(known[method])
        service = next((it for it in named if it in services), next(iter(services)))
        yield service, services[service]


def find_calls(packages: Path) -> set[Operation]:
    """The operations that an SDK's modules for inference call."""
    known = operations()
    found: set[Operation] = set()
    root = packages / "sagemaker"
    for file in sorted(root.rglob("*.py")):
        module = file.relative_to(root).with_suffix("")
        if any(part.startswith(ELSEWHERE) for part in module.parts):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                found.update(calls(node, known))
    return found


def main() -> None:
    """Print the table's rows."""
    called = set[Operation]().union(*(find_calls(Path(given)) for given in sys.argv[1:]))
    for service in sorted({service for service, _ in called}):
        names = sorted(name for each, name in called if each == service)
        served = [
            name
            for name in names
            if (service, name) in OPERATIONS or service in ("s3", "sagemaker-runtime")
        ]
        refused = [name for name in names if name not in served]
        print(f"| {service} | {', '.join(served)} | {', '.join(refused)} |")


if __name__ == "__main__":
    main()
