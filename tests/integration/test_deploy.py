"""`hostelry deploy` on one platform: models of several kinds, kills, repeats, printed programs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.integration.drill import ROLE
from tests.integration.framework_models import trained
from tests.integration.platform import CLI, Platform, processes_naming, until
from tests.integration.served_models import sklearn_runtimes
from tests.integration.verbs_rig import wait_component
from tests.models import random_adapter, tiny_llama
from tests.unit.containers.lmi.tiny import write_tokenizer

from hostelry.base.runtimes import VARIABLE, runtime_python
from hostelry.cli.prune import look, remove
from hostelry.containers.lmi.settings.ranks import CPU_RANKS_VARIABLE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CODE = """
import json
from helper import twice
def model_fn(folder):
    return 2
def input_fn(body, content_type):
    return json.loads(body)
def predict_fn(data, model):
    return twice(data["n"])
def output_fn(prediction, accept):
    return json.dumps({"twice": prediction}), "application/json"
"""
REVISION = "0" * 40
FOUNDING = {  # of the program that Hostelry began with, in a type whose answers are exact
    "OPTION_TRUST_REMOTE_CODE": "true",
    "OPTION_TENSOR_PARALLEL_DEGREE": "2",
    "OPTION_ROLLING_BATCH": "lmi-dist",
    "OPTION_MAX_ROLLING_BATCH_SIZE": "32",
    "OPTION_DTYPE": "fp32",
    "OPTION_ENABLE_LORA": "true",
    "OPTION_GPU_MEMORY_UTILIZATION": "0.8",
    "OPTION_MAX_LORA_RANK": "64",
    "OPTION_MAX_CPU_LORAS": "4",
}
PROBE = 'HOSTELRY_PROBE_BODY={"n": 4}'


@pytest.fixture(scope="module")
def runtimes() -> Path:
    return sklearn_runtimes()


@pytest.fixture(scope="module")
def platform(runtimes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    environment = {
        VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted", CPU_RANKS_VARIABLE: "1",
    }  # fmt: skip
    home = tmp_path_factory.mktemp("home") / "home"
    home.mkdir(mode=0o700)
    server = EXAMPLES / "own_image" / "server.py"
    (home / "images.toml").write_text(
        f'[[image]]\npattern = "*/lengths:*"\ncommand = ["{sys.executable}", "{server}"]\n'
        '[image.probe]\ncontent_type = "application/json"\nbody = \'{"instances": ["a"]}\'\n'
    )
    with Platform(home, environment=environment) as it:
        yield it


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model, next to a folder with two adapters."""
    folder = tmp_path_factory.mktemp("llm")
    model = tiny_llama(folder / "tiny", vocab_size=259, max_position_embeddings=2048)
    write_tokenizer(model)
    for seed, name in enumerate(("es", "fr"), 1):
        random_adapter(folder / "adapters" / name, model, rank=8, seed=seed)
    return folder


def deployed(platform: Platform, *arguments: str, code: int = 0) -> Any:
    """The document that deploy prints, or the error of an expected failure."""
    done = platform.cli("deploy", *arguments, "--json", code=code)
    return json.loads(done.stdout) if code == 0 else done.stderr


def run_programs(platform: Platform, document: dict[str, Any]) -> dict[str, str]:
    """The output of each printed program, by its title."""
    path = os.pathsep.join([str(Path(sys.executable).parent), platform.environment["PATH"]])
    start = f'eval "$(hostelry env --home {platform.home.root} 2> /dev/null)"\n'
    found = {}
    for title, text in document["next"].items():
        done = subprocess.run(
            ["bash", "-ec", start + text],
            env={**platform.environment, "PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{title}\n{text}\n{done.stdout}\n{done.stderr}"
        found[title] = done.stdout
    return found


def test_a_plan_changes_nothing(platform: Platform, llm: Path) -> None:
    plan = deployed(platform, str(llm / "tiny"), "--name", "planned", "--plan")
    assert plan["endpoint"] == "planned"
    assert plan["steps"][-1] == "create inference component planned"
    sagemaker = platform.boto3("sagemaker")
    assert not sagemaker.list_models(NameContains="planned")["Models"]
    assert not sagemaker.list_endpoint_configs(NameContains="planned")["EndpointConfigs"]
    assert not sagemaker.list_endpoints(NameContains="planned")["Endpoints"]
    names = [it["Name"] for it in platform.boto3("s3").list_buckets().get("Buckets", ())]
    bucket = plan["model_data"].split("/")[2]
    if bucket in names:
        found = platform.boto3("s3").list_objects_v2(Bucket=bucket)
        assert plan["model_data"].split("/")[4] not in str(found.get("Contents"))


def test_a_model_of_the_hubs_cache(platform: Platform, llm: Path, tmp_path: Path) -> None:
    cached = tmp_path / "hub" / "models--acme--tiny"
    shutil.copytree(llm / "tiny", cached / "snapshots" / REVISION)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(REVISION)
    hub = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9"}
    command = [*CLI, "deploy", "--home", str(platform.home.root), "--plan", "--json"]
    found, unknown = (
        subprocess.run(
            [*command, model_id], env={**platform.environment, **hub}, capture_output=True,
            text=True, check=False, timeout=60,
        )
        for model_id in ("acme/tiny", "acme/none")
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    plan = json.loads(found.stdout)
    assert (plan["kind"], plan["name"], plan["environment"].get("OPTION_MODEL_ID")) == (
        "llm", "tiny", None,
    )  # fmt: skip
    assert plan["uploads"]["files"] > 2
    assert unknown.returncode == 1
    assert "acme/none is not in the cache of the hub's models here, and http" in unknown.stderr


def test_an_llm_with_adapters_twice_and_killed_midway(platform: Platform, llm: Path) -> None:
    arguments = (str(llm / "tiny"), "--adapters", str(llm / "adapters"), "--min", "1", "--max", "2")
    command = [*CLI, "deploy", *arguments, "--home", str(platform.home.root)]
    for after_s in (1.5, 2.5, 4.0):
        begun = subprocess.Popen(
            command, env=platform.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(after_s)
        begun.send_signal(signal.SIGKILL)
        begun.wait()
    first = deployed(platform, *arguments)
    assert first["adapters"] == {"es": "tiny-es", "fr": "tiny-fr"}
    again = deployed(platform, *arguments)
    assert again["steps"] == []
    answers = run_programs(platform, again)
    assert set(answers) == {"curl", "openai", "boto3"}
    assert json.loads(answers["curl"])["model"] == "tiny"
    bounds = platform.boto3("application-autoscaling").describe_scalable_targets(
        ServiceNamespace="sagemaker", ResourceIds=["inference-component/tiny"]
    )["ScalableTargets"]
    assert [(it["MinCapacity"], it["MaxCapacity"]) for it in bounds] == [(1, 2)]
    runtime = platform.boto3("sagemaker-runtime")
    for name in ("tiny", "tiny-es"):
        body = json.dumps({"inputs": "Hello", "parameters": {"max_new_tokens": 4}})
        runtime.invoke_endpoint(
            EndpointName="tiny", InferenceComponentName=name, Body=body,
            ContentType="application/json",
        )  # fmt: skip


def create_ranks(sagemaker: Any, data: str) -> None:
    """An endpoint with the founding program's model on two ranks, and in one process."""
    variant = {"VariantName": "AllTraffic", "InstanceType": "ml.g5.12xlarge"}
    sagemaker.create_endpoint_config(
        EndpointConfigName="ranks",
        ExecutionRoleArn=ROLE,
        ProductionVariants=[{**variant, "InitialInstanceCount": 1}],
    )
    sagemaker.create_endpoint(EndpointName="ranks", EndpointConfigName="ranks")
    for number, name in ((1, "one-rank"), (2, "two-ranks")):
        sagemaker.create_inference_component(
            InferenceComponentName=name,
            EndpointName="ranks",
            VariantName="AllTraffic",
            Specification={
                "Container": {
                    "Image": "djl-inference:0.27.0-deepspeed0.12.6-cu121",
                    "ArtifactUrl": data,
                    "Environment": {**FOUNDING, "OPTION_TENSOR_PARALLEL_DEGREE": str(number)},
                },
                "ComputeResourceRequirements": {
                    "NumberOfAcceleratorDevicesRequired": number,
                    "MinMemoryRequiredInMb": 512,
                },
            },
            RuntimeConfig={"CopyCount": 1},
        )


def find_followers(platform: Platform) -> list[int]:
    """The processes of ranks other than 0."""
    found = processes_naming(str(platform.home.root))
    return [it for it in found if "runner.follower" in Path(f"/proc/{it}/cmdline").read_text()]


def test_two_ranks_answer_as_one_process_and_end_with_each_other(
    platform: Platform, llm: Path, tmp_path: Path
) -> None:
    sagemaker, runtime = platform.boto3("sagemaker"), platform.boto3("sagemaker-runtime")
    shutil.copytree(llm / "tiny", tmp_path / "model")
    shutil.copytree(llm / "adapters", tmp_path / "model" / "adapters")
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", tmp_path / "model")
    s3 = platform.boto3("s3")
    s3.create_bucket(Bucket="ranks")
    s3.put_object(Bucket="ranks", Key="model.tar.gz", Body=Path(archive).read_bytes())
    create_ranks(sagemaker, "s3://ranks/model.tar.gz")
    names = ("one-rank", "two-ranks")
    for name in names:
        wait_component(sagemaker, name)

    def answers(name: str) -> Any:
        body = {
            "inputs": ["Hello there", "The sea"],
            "adapters": ["es", "fr"],
            "parameters": {"max_new_tokens": 24, "do_sample": False, "ignore_eos_token": True},
        }
        answer = runtime.invoke_endpoint(
            EndpointName="ranks", InferenceComponentName=name, Body=json.dumps(body),
            ContentType="application/json",
        )  # fmt: skip
        return json.loads(answer["Body"].read())

    expected, found = (answers(name) for name in names)
    assert found == expected
    (follower,) = find_followers(platform)
    os.kill(follower, signal.SIGKILL)
    until(lambda: find_followers(platform) not in ([], [follower]), "the copy is started again")
    logs = platform.home.instances.glob("*/copies/*/log")
    assert any(
        "server ends: Inference Engine Failure: rank 1 was ended by SIGKILL" in log.read_text()
        for log in logs
    )
    for name in names:
        sagemaker.delete_inference_component(InferenceComponentName=name)
    until(lambda: not find_followers(platform), "no follower is left")


def test_a_file_of_scikit_learn_and_its_update_in_place(
    platform: Platform, runtimes: Path, tmp_path: Path
) -> None:
    trained(runtime_python(runtimes, "sklearn-1.2"), "sklearn", tmp_path)
    path = tmp_path / "model.joblib"
    document = deployed(platform, str(path), "--name", "rows")
    assert (document["runtime"], document["what"]) == (
        "sklearn:1.2", "a model of sklearn 1.2.2 (model.joblib)",
    )  # fmt: skip
    for text in run_programs(platform, document).values():
        # Its rows lie on a line, so that least squares gives 2.5 to both features, and 1.5.
        assert json.loads(text) == pytest.approx([6.5])
    other = deployed(platform, str(path), "--name", "rows", "--env", "A=b")
    assert [it.split(" rows")[0] for it in other["steps"]] == [
        "create model", "update inference component",
    ]  # fmt: skip
    shown = platform.looker().describe_inference_component(InferenceComponentName="rows")
    assert shown["Specification"]["ModelName"] == other["model"]


def test_a_directory_with_code(platform: Platform, tmp_path: Path) -> None:
    folder = tmp_path / "doubles"
    folder.mkdir()
    (folder / "inference.py").write_text(CODE)
    (folder / "helper.py").write_text("def twice(n):\n    return 2 * n\n")
    document = deployed(platform, str(folder), "--env", PROBE)
    answers = run_programs(platform, document)
    assert [json.loads(it) for it in answers.values()] == [{"twice": 8}] * 2
    # The same folder, packed and put into S3 by another program, is served from there.
    archive = shutil.make_archive(str(tmp_path / "packed"), "gztar", folder)
    s3 = platform.boto3("s3")
    s3.create_bucket(Bucket="packed-models")
    s3.put_object(Bucket="packed-models", Key="doubles.tar.gz", Body=Path(archive).read_bytes())
    plan = deployed(platform, "s3://packed-models/doubles.tar.gz", "--plan")
    assert (plan["kind"], plan["uploads"]["files"]) == ("framework", 0)


def test_an_image(platform: Platform) -> None:
    arguments = ("localhost/lengths:1", "--env", 'HOSTELRY_PROBE_BODY={"instances": ["abc"]}')
    answers = run_programs(platform, deployed(platform, *arguments))
    assert [json.loads(it) for it in answers.values()] == [[3]] * 2


def test_a_failure_names_its_cause_its_log_and_the_way_out(
    platform: Platform, tmp_path: Path
) -> None:
    folder = tmp_path / "torn"
    folder.mkdir()
    (folder / "inference.py").write_text("print('about to fail')\nraise ValueError('torn')\n")
    error = deployed(platform, str(folder), code=1)
    assert "component torn failed: " in error
    assert "ValueError: torn" in error
    assert "the last lines of" in error
    assert "hostelry rm torn" in error
    (folder / "inference.py").write_text(CODE)
    (folder / "helper.py").write_text("def twice(n):\n    return 2 * n\n")
    mended = deployed(platform, str(folder), "--env", PROBE)
    assert "delete the failed component torn" in mended["steps"]


@cases(
    "arguments, error, code",
    case("a missing path", ["./nothing"], "is not there", 1),
    case("an unknown instance type", ["localhost/x:1", "--instance-type", "ml.m5.lrge"],
        "did you mean ml.m5.large", 2),
    case("more than any instance has", ["localhost/x:1", "--memory-mb", "9000000"],
        "there is not enough room", 1),
    case("no bucket", ["s3://no-such-bucket/x/"], "cannot be listed", 1),
)  # fmt: skip
def test_bad_input_is_one_line(
    platform: Platform, arguments: list[str], error: str, code: int
) -> None:
    text = deployed(platform, *arguments, code=code)
    assert text.startswith("hostelry: ")
    assert error in text
    assert text.count("\n") == 1


def test_uploads_that_nothing_uses_are_pruned(platform: Platform, tmp_path: Path) -> None:
    s3, bucket = platform.boto3("s3"), "sagemaker-us-east-1-111122223333"
    unused = "deploy/0123456789abcdef/model.tar.gz"
    for key in (unused, "deploy/mine/model.tar.gz"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="deploy/fedcba9876543210/large")
    part = {"Key": upload["Key"], "UploadId": upload["UploadId"], "PartNumber": 1}
    s3.upload_part(Bucket=bucket, **part, Body=b"x")
    shown = json.loads(platform.cli("prune", "--yes", "--json").stdout)
    assert shown["uploads"] == [], "both were put a short time ago"
    reasons = {it["uri"]: it["reason"] for it in shown["kept"]}
    assert reasons.pop(f"s3://{bucket}/deploy/0123456789abcdef/") == "it was put a short time ago"
    assert [why for why in reasons.values() if why.endswith(" names it")], "models are deployed"
    running = (platform.config, platform.credentials)
    plan = look(running, least_age_s=0.0)
    gone = {f"s3://{bucket}/deploy/{it}/" for it in ("0123456789abcdef", "fedcba9876543210")}
    assert gone <= {it.uri for it, why in plan.uploads if why == "no record names it"}
    remove(plan, running, lambda _: None)
    listed = s3.list_objects_v2(Bucket=bucket, Prefix="deploy/")["Contents"]
    kept = {it["Key"] for it in listed}
    assert unused not in kept
    assert "deploy/mine/model.tar.gz" in kept
    assert not s3.list_multipart_uploads(Bucket=bucket, Prefix="deploy/fe").get("Uploads")
    named = [uri for uri, why in reasons.items() if why.endswith(" names it")]
    folders = {f"s3://{bucket}/{key.rpartition('/')[0]}" for key in kept}
    assert all(uri.rpartition("/")[0] in folders for uri in named if "/deploy/" in uri)


def test_a_platform_that_is_down_is_named(platform: Platform, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("credentials.json", "config.json"):
        shutil.copy(platform.home.root / name, home)
    stored = json.loads((home / "config.json").read_text())
    (home / "config.json").write_text(json.dumps({**stored, "door_port": 1, "control_port": 1}))
    done = subprocess.run(
        [*CLI, "deploy", "localhost/x:1", "--home", str(home)],
        env=platform.environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "start it with `hostelry up`" in done.stderr
    assert "Traceback" not in done.stderr
