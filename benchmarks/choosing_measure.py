"""Times, rates and memory of each hosting option, measured through the gateway of a platform.

Models are scikit-learn models of mixed kinds, and the demo LLM with an adapter. One fleet runs at a
time. Times are as a client has them: a request is signed before its time starts.
"""

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningCredentials
from botocore.exceptions import ClientError
from tests.integration.platform import Platform, until
from tests.integration.served_models import packed

from benchmarks.cost_fleet import AT_ONCE, LLM_BODY, CallTarget, Fleet
from benchmarks.cost_sharing import MB, FootprintMeter
from benchmarks.many_models_platform import BUCKET, IMAGE, PREFIX, ROLE
from benchmarks.peers.model_shelf import BODY, JSON, Connections, timed_answer
from hostelry.loadtest.tally import percentile

SMALL, LARGE = "ml.c5.large", "ml.c5.xlarge"
BATCH_TYPE = "ml.m5.large"  # transform jobs have no ml.c5.large
HEADERS = {
    "InferenceComponentName": "X-Amzn-SageMaker-Inference-Component",
    "TargetModel": "X-Amzn-SageMaker-Target-Model",
    "TargetContainerHostname": "X-Amzn-SageMaker-Target-Container-Hostname",
}
OWN, COMPONENT, MULTI_MODEL, CONTAINERS = "own", "parts", "shop", "boxes"
SERVERLESS, QUEUED, CHAIN, CHAT = "zero", "queued", "chain", "chat"
INPUT = f"s3://{BUCKET}/in.json"
SUBMITTERS, WITHIN_S = 4, 120.0
STREAM_TOKENS = 16
# The first container of the pipeline passes its rows on to the second.
PASS_ON = b"""
def model_fn(folder):
    return None
def predict_fn(rows, model):
    return rows.tolist() if hasattr(rows, "tolist") else rows
"""
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSetting:
    """Numbers of calls, queued and cold calls, lines, containers and streams, seconds of load."""

    num_calls: int
    load_s: float
    at_once: tuple[int, ...]
    num_queued: int
    num_cold: int
    num_lines: int
    num_containers: int
    num_streams: int


class OptionMeter:
    """Measures one option after the other on a platform.

    Args:
        platform: with the archives of `models` in its bucket.
        fleet: creates and removes the endpoints.
        models: names of the archives. The first one is the model of options with one model.
    """

    def __init__(
        self, platform: Platform, fleet: Fleet, models: Sequence[str], setting: MeasureSetting
    ) -> None:
        self._platform = platform
        self._fleet = fleet
        self._models = models
        self._setting = setting
        self._memory = FootprintMeter(fleet, platform.processes, num_calls=len(models))
        self._connections = Connections(platform.port)
        keys = platform.credentials
        signing = SigningCredentials(keys.access_key_id, keys.secret_access_key)
        self._signer = SigV4Auth(signing, "sagemaker", keys.region)
        self._sagemaker = platform.boto3("sagemaker")
        self._runtime = platform.boto3("sagemaker-runtime", max_pool_connections=8)
        self._s3 = platform.boto3("s3", s3={"addressing_style": "path"})

    def measure_all(self) -> list[Row]:
        """A row for each option of scikit-learn models."""
        acts = (
            self.measure_dedicated,
            self.measure_components,
            self.measure_multi_model,
            self.measure_containers,
            self.measure_serverless,
            self.measure_asynchronous,
            self.measure_batch,
            self.measure_pipeline,
        )
        rows = []
        for act in acts:
            rows.append(act())
            shown = ", ".join(f"{name} {value}" for name, value in rows[-1].items() if value)
            print(f"  {shown}", flush=True)
        return rows

    def measure_dedicated(self) -> Row:
        """A separate endpoint."""
        targets, first_s = self._create_timed(lambda: self._fleet.list_own(self._models[:1]))
        starts_s = self._read_starts()
        row = {
            "option": "dedicated",
            "models": 1,
            "first answer s": first_s,
            "copy start s": statistics.median(starts_s) if starts_s else None,
            **self._measure_calls(targets[0]),
        }
        return self._finish(row, targets)

    def measure_components(self) -> Row:
        """All models as components of one instance."""
        targets, first_s = self._create_timed(
            lambda: self._fleet.list_components(COMPONENT, LARGE, self._models[:4])
        )
        row = {"option": "components", "models": len(targets), "first answer s": first_s}
        row["copy start s"] = statistics.median(self._read_starts())
        return self._finish({**row, **self._measure_calls(targets[0])}, targets)

    def measure_multi_model(self) -> Row:
        """All models on one multi-model endpoint. The first call of each loads it."""
        targets, first_s = self._create_timed(
            lambda: self._fleet.list_multi_model(MULTI_MODEL, self._models), calls=1
        )
        loads_s = [self._call(it) for it in targets[1:]]
        row = {"option": "multi-model", "models": len(targets), "first answer s": first_s}
        row["cold call ms"] = 1000 * statistics.median(loads_s)
        row |= self._measure_downloads()
        return self._finish({**row, **self._measure_calls(targets[0])}, targets)

    def measure_containers(self) -> Row:
        """A container for each model on one endpoint, called directly."""
        names = self._models[: self._setting.num_containers]
        targets, first_s = self._create_timed(
            lambda: self._fleet.list_containers(CONTAINERS, names)
        )
        row = {"option": "multi-container", "models": len(targets), "first answer s": first_s}
        return self._finish({**row, **self._measure_calls(targets[0])}, targets)

    def measure_serverless(self) -> Row:
        """A serverless endpoint. Cold calls begin without an environment."""
        targets, first_s = self._create_timed(
            lambda: self._fleet.list_serverless(SERVERLESS, self._models[0])
        )
        colds_s = []
        for _ in range(self._setting.num_cold):
            until(lambda: not self._list_copies(SERVERLESS), "no environment is left", WITHIN_S)
            colds_s.append(self._call(targets[0]))
        row = {"option": "serverless", "models": 1, "first answer s": first_s}
        row["cold call ms"] = 1000 * statistics.median(colds_s)
        row |= self._measure_calls(targets[0], most=AT_ONCE)
        return self._finish(row, targets)

    def measure_asynchronous(self) -> Row:
        """A queue. A call's time is from its submission until its answer can be read."""
        url = f"s3://{BUCKET}/out"
        began_s = time.monotonic()
        self._create_model(QUEUED, PrimaryContainer=self._container(self._models[0]))
        self._start(QUEUED, AsyncInferenceConfig={"OutputConfig": {"S3OutputPath": url}})
        self._s3.put_object(Bucket=BUCKET, Key="in.json", Body=BODY)
        self._wait_for_object(self._submit())
        first_s = time.monotonic() - began_s
        times_s = sorted(
            self._time_it(lambda: self._wait_for_object(self._submit()))
            for _ in range(self._setting.num_calls)
        )
        took_s = self._time_it(self._drain_queue)
        row = {
            "option": "asynchronous",
            "models": 1,
            "first answer s": first_s,
            "call ms": 1000 * percentile(times_s, 0.5),
            "call p99 ms": 1000 * percentile(times_s, 0.99),
            "calls a second": self._setting.num_queued / took_s,
            "at once": SUBMITTERS,
        }
        self._fleet.remove([QUEUED])
        return row

    def measure_batch(self) -> Row:
        """A transform job of many lines in a request, compared with a job of a single line.

        The rate is without the start of the job's instance.
        """
        num = self._setting.num_lines
        line = (",".join(str(it) for it in json.loads(BODY)[0]) + "\n").encode()
        self._s3.put_object(Bucket=BUCKET, Key="lines/one.csv", Body=line)
        self._s3.put_object(Bucket=BUCKET, Key="many/all.csv", Body=line * num)
        self._create_model("nightly", PrimaryContainer=self._container(self._models[0]))
        first_s = self._time_it(lambda: self._transform("one", "lines/"))
        took_s = self._time_it(lambda: self._transform("all", "many/"))
        after_start_s = took_s - first_s if took_s > first_s else took_s
        return {
            "option": "batch",
            "models": 1,
            "first answer s": first_s,
            "calls a second": num / after_start_s,
            "at once": num,
        }

    def measure_pipeline(self) -> Row:
        """Two containers in a row, of which the first one passes the rows on."""
        key = f"{PREFIX}/pass-on.tar.gz"
        self._s3.put_object(Bucket=BUCKET, Key=key, Body=packed(**{"code/inference.py": PASS_ON}))
        first = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/{key}"}

        def create() -> list[CallTarget]:
            self._create_model(CHAIN, Containers=[first, self._container(self._models[0])])
            self._start(CHAIN)
            return [self._fleet.build_target(self._models[0], EndpointName=CHAIN)]

        targets, first_s = self._create_timed(create)
        row = {"option": "pipeline", "models": 2, "first answer s": first_s}
        return self._finish({**row, **self._measure_calls(targets[0])}, targets)

    def measure_llm(self, adapters: Sequence[str]) -> Row:
        """The base with its adapters. Streams are of the first adapter."""
        began_s = time.monotonic()
        targets = self._fleet.list_adapters(CHAT, LARGE, adapters)
        self._fleet.call(targets[0])
        first_s = time.monotonic() - began_s
        starts_s = self._read_starts()
        alone = [self._stream(targets[0]) for _ in range(self._setting.num_streams)]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(self._stream, [targets[it % len(targets)] for it in range(8)]))
        used = self._memory.measure("the LLM with its adapters", targets, 4, 0.0)
        self._fleet.remove([CHAT])
        tokens_s = [it for one in alone for it in one[1:]]
        # Streams may end early, so that they are compared by the mean time of a token.
        means_s = [
            statistics.median(sum(it) / len(it) for it in streams) for streams in (alone, together)
        ]
        return {
            "option": "adapters",
            "models": len(targets),
            "first answer s": first_s,
            "copy start s": max(starts_s) if starts_s else None,
            "first token ms": 1000 * statistics.median(it[0] for it in alone),
            "token ms": 1000 * statistics.median(tokens_s),
            "slowdown of 4": max(1.0, means_s[1] / means_s[0]),
            "memory MB": used.memory_bytes / MB,
        }

    def _create_timed(
        self, create: Callable[[], list[CallTarget]], calls: int | None = None
    ) -> tuple[list[CallTarget], float]:
        """Create a fleet, and call its targets, or the first `calls` of them, once."""
        began_s = time.monotonic()
        targets = create()
        for target in targets[:calls]:
            self._call(target)
        return targets, time.monotonic() - began_s

    def _measure_calls(self, target: CallTarget, most: int | None = None) -> Row:
        """Times of calls one after the other, and the best rate of those at once.

        They are of the same model for each option, so that they can be compared. An option may take
        `most` calls at once.
        """
        times_s = sorted(self._call(target) for _ in range(self._setting.num_calls))
        rates = {
            num: self._measure_rate(target, num)
            for num in self._setting.at_once
            if num <= (most or num)
        }
        best = max(rates, key=lambda it: rates[it])
        return {
            "call min ms": 1000 * times_s[0],
            "call ms": 1000 * percentile(times_s, 0.5),
            "call p90 ms": 1000 * percentile(times_s, 0.9),
            "call p99 ms": 1000 * percentile(times_s, 0.99),
            "call max ms": 1000 * times_s[-1],
            "calls a second": rates[best],
            "at once": best,
        }

    def _measure_rate(self, target: CallTarget, at_once: int) -> float:
        """Calls a second of that number of senders."""
        ends_s = time.monotonic() + self._setting.load_s

        def send(_: int) -> int:
            num = 0
            while time.monotonic() < ends_s:
                self._call(target)
                num += 1
            return num

        began_s = time.monotonic()
        with ThreadPoolExecutor(at_once) as pool:
            num = sum(pool.map(send, range(at_once)))
        return num / (time.monotonic() - began_s)

    def _measure_downloads(self) -> Row:
        """The time and the size of the models' archives, read from S3."""
        times_s, sizes = [], []
        for model in self._models:
            began_s = time.perf_counter()
            key = f"{PREFIX}/{model}"
            sizes.append(len(self._s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()))
            times_s.append(time.perf_counter() - began_s)
        return {
            "download ms": 1000 * statistics.median(times_s),
            "archive MB": statistics.median(sizes) / MB,
        }

    def _finish(self, row: Row, targets: Sequence[CallTarget]) -> Row:
        """Add the memory of the fleet, and remove it."""
        used = self._memory.measure(row["option"], targets, 0.0, 0.0)
        self._fleet.remove({it.options["EndpointName"] for it in targets})
        return {**row, "memory MB": used.memory_bytes / MB}

    def _call(self, target: CallTarget) -> float:
        """Seconds of a call."""
        path = f"/endpoints/{target.options['EndpointName']}/invocations"
        named = {HEADERS[it]: value for it, value in target.options.items() if it in HEADERS}
        url = f"http://127.0.0.1:{self._platform.port}{path}"
        request = AWSRequest("POST", url, {"Content-Type": JSON, **named}, target.body)
        self._signer.add_auth(request)
        headers = {name: str(value) for name, value in request.headers.items()}
        content, took_s = timed_answer(self._connections, path, target.body, headers)
        found = json.loads(content)
        if target.expected is not None and abs(found[0] - target.expected) > 1e-6:
            raise RuntimeError(f"{target.name} answered {found}, not {target.expected}")
        return took_s

    def _stream(self, target: CallTarget) -> list[float]:
        """The time to the first token, and between tokens, of a streamed answer."""
        prompt = json.loads(LLM_BODY)
        prompt["parameters"]["max_new_tokens"] = STREAM_TOKENS
        prompt["stream"] = True
        began_s = time.perf_counter()
        answer = self._runtime.invoke_endpoint_with_response_stream(
            ContentType=JSON, Body=json.dumps(prompt).encode(), **target.options
        )
        at_s = [time.perf_counter() for it in answer["Body"] if it["PayloadPart"]["Bytes"]]
        if not at_s:
            raise RuntimeError(f"{target.name} streamed nothing")
        return [after - before for before, after in zip([began_s, *at_s], at_s, strict=False)]

    def _read_starts(self) -> list[float]:
        """Seconds from the launch of each copy until it was ready."""
        return [it["start_s"] for it in self._list_copies() if it.get("start_s") is not None]

    def _list_copies(self, endpoint: str = "") -> list[Mapping[str, Any]]:
        state = json.loads(self._platform.cli("status", "--json").stdout)["state"]
        named = [it for it in state["endpoints"] if endpoint in ("", it["name"])]
        return [copy for it in named for copy in list_copies(it)]

    def _container(self, model: str) -> dict[str, str]:
        return {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/{PREFIX}/{model}"}

    def _create_model(self, name: str, **containers: Any) -> None:
        self._sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, **containers)

    def _start(self, name: str, **options: Any) -> None:
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": name,
            "InstanceType": SMALL,
            "InitialInstanceCount": 1,
        }
        self._sagemaker.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=[variant], **options
        )
        self._sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        self._wait_in_service(name)

    def _wait_in_service(self, name: str) -> None:
        def is_ready() -> bool:
            found = self._sagemaker.describe_endpoint(EndpointName=name)
            if found["EndpointStatus"] == "Failed":
                raise RuntimeError(f"{name}: {found['FailureReason']}")
            return bool(found["EndpointStatus"] == "InService")

        until(is_ready, f"{name} is in service", WITHIN_S)

    def _drain_queue(self) -> None:
        """Queue many calls, and wait until all answers exist."""
        wanted = self._count_answers() + self._setting.num_queued
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(lambda _: self._submit(), range(self._setting.num_queued)))
        until(lambda: self._count_answers() >= wanted, "all answers are there", WITHIN_S)

    def _count_answers(self) -> int:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="out/")
        return sum(len(it.get("Contents", ())) for it in pages)

    def _submit(self) -> str:
        """Queue a call. Returns the key of its answer."""
        answer = self._runtime.invoke_endpoint_async(
            EndpointName=QUEUED, ContentType=JSON, InputLocation=INPUT
        )
        return str(answer["OutputLocation"]).removeprefix(f"s3://{BUCKET}/")

    def _wait_for_object(self, key: str) -> None:
        ends_s = time.monotonic() + WITHIN_S
        while not self._has_object(key):
            if time.monotonic() > ends_s:
                raise RuntimeError(f"{key}: no answer within {WITHIN_S:g} s")
            time.sleep(0.002)

    def _has_object(self, key: str) -> bool:
        try:
            self._s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchKey":
                raise
            return False
        return True

    def _transform(self, name: str, prefix: str) -> None:
        source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}"}
        self._sagemaker.create_transform_job(
            TransformJobName=name,
            ModelName="nightly",
            BatchStrategy="MultiRecord",
            MaxPayloadInMB=1,
            TransformInput={
                "DataSource": {"S3DataSource": source},
                "ContentType": "text/csv",
                "SplitType": "Line",
            },
            TransformOutput={"S3OutputPath": f"s3://{BUCKET}/out-{name}"},
            TransformResources={"InstanceType": BATCH_TYPE, "InstanceCount": 1},
        )

        def has_ended() -> bool:
            found = self._sagemaker.describe_transform_job(TransformJobName=name)
            if found["TransformJobStatus"] == "Failed":
                raise RuntimeError(f"job {name}: {found['FailureReason']}")
            return bool(found["TransformJobStatus"] == "Completed")

        until(has_ended, f"job {name} is completed", WITHIN_S)

    def _time_it(self, act: Callable[[], None]) -> float:
        began_s = time.monotonic()
        act()
        return time.monotonic() - began_s


def list_copies(endpoint: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The copies of an endpoint in `hostelry status --json`, also of its components."""
    found = list(endpoint.get("copies") or ())
    for component in endpoint.get("components") or ():
        found += component.get("copies") or ()
    return found


def read_load() -> float:
    """The machine's load average of the last minute."""
    return os.getloadavg()[0]
