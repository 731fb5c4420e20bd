"""The AWS operations that an installed SageMaker SDK calls around inference, and where.

    python -m tests.integration.sdk_calls SDK2/site-packages SDK3/site-packages

prints the rows of the table in docs/sdks.md. A call is a method that botocore has for an operation,
or a paginator or waiter of it, on something named like a client.
"""

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from botocore import xform_name
from botocore.session import Session

from hostelry.api.operations import OPERATIONS

SERVICES = (
    "sagemaker", "sagemaker-runtime", "s3", "sts", "iam", "logs", "ec2", "ecr", "kms",
    "secretsmanager", "cloudwatch", "application-autoscaling", "sns", "sqs", "ssm",
)  # fmt: skip
# Folders and modules of training, features, monitoring, pipelines, lineage, local mode, Studio.
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
Place = tuple[str, str]


def operations() -> Mapping[str, list[Place]]:
    """(service, operation) by the client's method."""
    session = Session()
    found: dict[str, list[Place]] = {}
    for service in SERVICES:
        for operation in session.get_service_model(service).operation_names:
            found.setdefault(xform_name(operation), []).append((service, operation))
    return found


def calls(tree: ast.AST, known: Mapping[str, list[Place]]) -> Iterator[Place]:
    """Each (service, operation) that is called in a function."""
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


def places(packages: Path) -> Mapping[Place, set[str]]:
    """Modules and functions around inference, by what they call."""
    known = operations()
    found: dict[Place, set[str]] = {}
    root = packages / "sagemaker"
    for file in sorted(root.rglob("*.py")):
        module = file.relative_to(root).with_suffix("")
        if any(part.startswith(ELSEWHERE) for part in module.parts):
            continue
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                for call in calls(node, known):
                    found.setdefault(call, set()).add(f"{module}:{node.name}")
    return found


def main() -> None:
    """Print the table's rows."""
    both = [places(Path(given)) for given in sys.argv[1:]]
    for call in sorted({*both[0], *both[1]}):
        first = " | ".join(shown(sorted(each.get(call, ()))) for each in both)
        here = (
            "served" if call in OPERATIONS or call[0] in ("s3", "sagemaker-runtime") else "refused"
        )
        print(f"| {call[0]} | {call[1]} | {first} | {here} |")


def shown(found: Sequence[str]) -> str:
    """The first place, and how many more."""
    return (f"`{found[0]}`" + (f" +{len(found) - 1}" if found[1:] else "")) if found else ""


if __name__ == "__main__":
    main()
