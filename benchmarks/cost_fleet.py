"""The fleets whose costs are compared: models on shared endpoints, and on an endpoint each."""

import io
import json
import tarfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.platform import Platform

from benchmarks.many_models_platform import BUCKET, IMAGE, PREFIX, ROLE
from benchmarks.peers.model_shelf import BODY

LLM_IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.33.0-cpu-full"
VARIANT, JSON = "AllTraffic", "application/json"
NEW_TOKENS = 4
PROMPT = {"inputs": "Cats are", "parameters": {"max_new_tokens": NEW_TOKENS}}
LLM_BODY = json.dumps(PROMPT).encode()
COMPONENT_CPUS, COMPONENT_MB = 0.5, 512
BASE, BASE_CPUS, BASE_MB = "base", 3.0, 6144
SERVERLESS_MB = 1024
READY_S, PAUSE_S = 240.0, 0.1
AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTarget:
    """A name that calls are for. `options` are InvokeEndpoint's parameters.

    `expected` is the model's prediction as the training program computed it, or None for text.
    """

    name: str
    options: Mapping[str, Any]
    body: bytes
    expected: float | None = None


class Fleet:
    """Creates and removes endpoints on a platform, and calls them with boto3."""

    def __init__(
        self, platform: Platform, answers: Mapping[str, float], instance_type: str
    ) -> None:
        self._platform = platform
        self._answers = answers
        self._type = instance_type
        self._client = platform.boto3("sagemaker", max_pool_connections=AT_ONCE)
        self._runtimes: dict[str, Any] = {}

    def upload_base(self, model: Path, adapters: Mapping[str, Path]) -> None:
        """Put the base model's files and an archive per adapter into the bucket."""
        s3 = self._platform.boto3(
            "s3", s3={"addressing_style": "path"}, max_pool_connections=AT_ONCE
        )
        objects = {f"base/{it.name}": it for it in model.iterdir() if it.is_file()}
        objects |= {f"adapters/{name}.tar.gz": folder for name, folder in adapters.items()}

        def store_object(key: str) -> None:
            path = objects[key]
            content = pack(path) if path.is_dir() else path.read_bytes()
            s3.put_object(Bucket=BUCKET, Key=key, Body=content)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(store_object, objects))

    def list_own(self, names: Collection[str]) -> list[CallTarget]:
        """An endpoint for each model, in service."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda it: self._create(own_name(it), self._framework(it)), names))
        self._wait(own_name(it) for it in names)
        return [self.build_target(it, EndpointName=own_name(it)) for it in names]

    def list_multi_model(self, name: str, names: Collection[str]) -> list[CallTarget]:
        """An endpoint whose requests name the model."""
        url = f"s3://{BUCKET}/{PREFIX}/"
        self._create(name, {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": url})
        self._wait([name])
        return [self.build_target(it, EndpointName=name, TargetModel=it) for it in names]

    def list_containers(self, name: str, names: Sequence[str]) -> list[CallTarget]:
        """An endpoint with a container for each model, whose requests name the container."""
        hosts = [own_name(it) for it in names]
        containers = [
            {**self._framework(it), "ContainerHostname": host}
            for it, host in zip(names, hosts, strict=True)
        ]
        self._client.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            Containers=containers,
            InferenceExecutionConfig={"Mode": "Direct"},
        )
        self._start(name, {"ModelName": name, "InstanceType": self._type})
        self._wait([name])
        return [
            self.build_target(it, EndpointName=name, TargetContainerHostname=host)
            for it, host in zip(names, hosts, strict=True)
        ]

    def list_components(self, name: str, kind: str, names: Collection[str]) -> list[CallTarget]:
        """An endpoint of one instance of the type `kind`, with a component for each model."""
        self._start(name, {"InstanceType": kind})
        self._wait([name])
        for model in names:
            needs = {
                "NumberOfCpuCoresRequired": COMPONENT_CPUS,
                "MinMemoryRequiredInMb": COMPONENT_MB,
            }
            container = {"Image": IMAGE, "ArtifactUrl": self._framework(model)["ModelDataUrl"]}
            self._component(name, f"part-{own_name(model)}", container, needs)
        parts = [f"part-{own_name(it)}" for it in names]
        self._wait_components(parts)
        return [
            self.build_target(it, EndpointName=name, InferenceComponentName=part)
            for it, part in zip(names, parts, strict=True)
        ]

    def list_adapters(self, name: str, kind: str, adapters: Collection[str]) -> list[CallTarget]:
        """An endpoint of one instance of the type `kind`, with a base and its adapters."""
        self._start(name, {"InstanceType": kind})
        self._wait([name])
        environment = {"OPTION_MODEL_ID": f"s3://{BUCKET}/base/", "OPTION_ENABLE_LORA": "true"}
        needs = {"NumberOfCpuCoresRequired": BASE_CPUS, "MinMemoryRequiredInMb": BASE_MB}
        container = {"Image": LLM_IMAGE, "Environment": environment}
        self._component(name, BASE, container, needs)
        self._wait_components([BASE])
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda it: self._adapter(name, it), adapters))
        self._wait_components(adapters)
        return [
            CallTarget(
                name=adapter,
                options={"EndpointName": name, "InferenceComponentName": adapter},
                body=LLM_BODY,
            )
            for adapter in adapters
        ]

    def list_base(self, name: str) -> list[CallTarget]:
        """An endpoint of the base model alone, in place of a base with a merged adapter."""
        environment = {"OPTION_MODEL_ID": f"s3://{BUCKET}/base/"}
        self._create(name, {"Image": LLM_IMAGE, "Environment": environment})
        self._wait([name])
        return [CallTarget(name=name, options={"EndpointName": name}, body=LLM_BODY)]

    def list_serverless(self, name: str, model: str) -> list[CallTarget]:
        """A serverless endpoint of one model."""
        settings = {"MemorySizeInMB": SERVERLESS_MB, "MaxConcurrency": AT_ONCE}
        self._client.create_model(
            ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=self._framework(model)
        )
        self._start(name, {"ModelName": name, "ServerlessConfig": settings})
        self._wait([name])
        return [self.build_target(model, EndpointName=name)]

    def call(self, target: CallTarget, tenant: str = "") -> int:
        """Send a request, check the answer, and return the bytes of the answer."""
        answer = self._runtime(tenant).invoke_endpoint(
            ContentType=JSON, Body=target.body, **target.options
        )
        content: bytes = answer["Body"].read()
        found = json.loads(content)
        if target.expected is not None and abs(found[0] - target.expected) > 1e-6:
            raise RuntimeError(f"{target.name} answered {found}, not {target.expected}")
        if target.expected is None and "generated_text" not in found:
            raise RuntimeError(f"{target.name} answered {found}, without generated_text")
        return len(content)

    def remove(self, names: Collection[str]) -> None:
        """Delete endpoints with their components, and wait until they are gone."""
        for name in names:
            self._remove_components(name)
        for name in names:
            self._client.delete_endpoint(EndpointName=name)
        self._until(
            lambda: not {*names} & {it["EndpointName"] for it in self._list_endpoints()},
            "endpoints are deleted",
        )

    def build_target(self, model: str, **options: Any) -> CallTarget:
        """The target of a model, whose prediction is checked."""
        return CallTarget(name=model, options=options, body=BODY, expected=self._answers[model])

    def _framework(self, model: str) -> dict[str, Any]:
        return {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/{PREFIX}/{model}"}

    def _runtime(self, tenant: str) -> Any:
        """A client whose requests name the tenant. Clients are made before threads use them."""
        if tenant not in self._runtimes:
            client = self._platform.boto3("sagemaker-runtime", max_pool_connections=32)
            if tenant:

                def name_tenant(request: Any, **_: Any) -> None:
                    request.headers["X-Hostelry-Tenant"] = tenant

                client.meta.events.register("before-sign.sagemaker-runtime", name_tenant)
            self._runtimes[tenant] = client
        return self._runtimes[tenant]

    def know_tenants(self, tenants: Collection[str]) -> None:
        """Make the clients of these tenants."""
        for tenant in tenants:
            self._runtime(tenant)

    def _create(self, name: str, container: Mapping[str, Any]) -> None:
        self._client.create_model(
            ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=dict(container)
        )
        self._start(name, {"ModelName": name, "InstanceType": self._type})

    def _start(self, name: str, variant: Mapping[str, Any]) -> None:
        whole = {"VariantName": VARIANT, **variant}
        if "ServerlessConfig" not in variant:
            whole["InitialInstanceCount"] = 1
        role = {} if "ModelName" in variant else {"ExecutionRoleArn": ROLE}
        self._client.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[whole], **role
        )
        self._client.create_endpoint(EndpointName=name, EndpointConfigName=name)

    def _component(
        self, endpoint: str, name: str, container: Mapping[str, Any], needs: Mapping[str, Any]
    ) -> None:
        self._client.create_inference_component(
            InferenceComponentName=name,
            EndpointName=endpoint,
            VariantName=VARIANT,
            Specification={
                "Container": dict(container),
                "ComputeResourceRequirements": dict(needs),
            },
            RuntimeConfig={"CopyCount": 1},
        )

    def _adapter(self, endpoint: str, name: str) -> None:
        container = {"ArtifactUrl": f"s3://{BUCKET}/adapters/{name}.tar.gz"}
        self._client.create_inference_component(
            InferenceComponentName=name,
            EndpointName=endpoint,
            Specification={"BaseInferenceComponentName": BASE, "Container": container},
        )

    def _remove_components(self, endpoint: str) -> None:
        found = [it["InferenceComponentName"] for it in self._list_components(endpoint)]
        order = sorted(found, key=lambda it: it == BASE)  # adapters first
        for name in order:
            self._client.delete_inference_component(InferenceComponentName=name)
        self._until(
            lambda: not list(self._list_components(endpoint)), f"components of {endpoint} are gone"
        )

    def _list_endpoints(self) -> Iterator[dict[str, Any]]:
        for page in self._client.get_paginator("list_endpoints").paginate():
            yield from page["Endpoints"]

    def _list_components(self, endpoint: str = "") -> Iterator[dict[str, Any]]:
        named = {"EndpointNameEquals": endpoint} if endpoint else {}
        pages = self._client.get_paginator("list_inference_components").paginate(**named)
        for page in pages:
            yield from page["InferenceComponents"]

    def _wait(self, names: Iterator[str] | Collection[str]) -> None:
        wanted = {*names}

        def are_ready() -> bool:
            statuses = {it["EndpointName"]: it["EndpointStatus"] for it in self._list_endpoints()}
            return check_statuses(statuses, wanted)

        self._until(are_ready, f"{len(wanted)} endpoints are in service")

    def _wait_components(self, names: Collection[str]) -> None:
        def are_ready() -> bool:
            statuses = {
                one["InferenceComponentName"]: one["InferenceComponentStatus"]
                for one in self._list_components()
            }
            return check_statuses(statuses, names)

        self._until(are_ready, f"{len(names)} components are in service")

    def _until(self, check: Callable[[], bool], what: str) -> None:
        give_up_at_s = time.monotonic() + READY_S
        while not check():
            if time.monotonic() > give_up_at_s:
                raise RuntimeError(f"{what}: not within {READY_S:g} s")
            time.sleep(PAUSE_S)


def check_statuses(statuses: Mapping[str, str], names: Collection[str]) -> bool:
    """Whether all names are InService. Raises RuntimeError if one has failed."""
    failed = [it for it in names if statuses.get(it) == "Failed"]
    if failed:
        raise RuntimeError(f"{', '.join(failed)}: Failed")
    return all(statuses.get(it) == "InService" for it in names)


def own_name(model: str) -> str:
    """The name of a model's endpoint or container: its archive's name without the suffix."""
    return model.removesuffix(".tar.gz")


def pack(folder: Path) -> bytes:
    """The archive of an adapter's folder."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=0) as packed:
        packed.add(folder, ".")
    return content.getvalue()
