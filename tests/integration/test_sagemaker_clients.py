"""Clients that others wrote, unmodified under `hostelry exec`, against LLM images and MLflow's."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.drill import ROLE
from tests.integration.platform import Platform
from tests.integration.verbs_rig import BASE, BUCKET, ENDPOINT, verbs_platform, wait_endpoint
from tests.integration.virtual_environments import virtual_environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]  # the first run installs them
PROGRAMS = Path(__file__).with_name("llm_clients")
TGI_IMAGE = (
    "763104351884.dkr.ecr.us-east-1.amazonaws.com/"
    "huggingface-pytorch-tgi-inference:2.4.0-tgi3.0.1-gpu-py311-cu124-ubuntu22.04"
)
# litellm of 2026, of November 2025 and of February 2025, which signs what httpx then sent.
LITELLM = [("litellm==1.110.2",), ("litellm==1.80.0",), ("litellm==1.61.0", "httpx<0.28")]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with verbs_platform(tmp_path_factory.mktemp("clients")) as running:
        yield running


@pytest.fixture(scope="module")
def tgi(platform: Platform) -> str:
    """An endpoint of the tiny LLM with the image of Hugging Face's TGI."""
    sagemaker, name = platform.boto3("sagemaker"), "tgi"
    source = {
        "S3Uri": f"s3://{BUCKET}/tiny/",
        "S3DataType": "S3Prefix",
        "CompressionType": "None",
    }
    container = {"Image": TGI_IMAGE, "ModelDataSource": {"S3DataSource": source}}
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {"VariantName": "AllTraffic", "ModelName": name, "InstanceType": "ml.m5.large"}
    sagemaker.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
    )
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    wait_endpoint(sagemaker, name)
    return name


def run(platform: Platform, python: Path, program: str, *arguments: str) -> Any:
    """The JSON that a program prints under `exec`."""
    command = [str(python), str(PROGRAMS / program), *arguments]
    done = platform.exec(command, {"LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    return json.loads(done.stdout.splitlines()[-1])


def asked(platform: Platform, body: dict[str, Any], **where: str) -> Any:
    """The endpoint's answer to boto3."""
    runtime = platform.boto3("sagemaker-runtime")
    answer = runtime.invoke_endpoint(ContentType="application/json", Body=json.dumps(body), **where)
    return json.loads(answer["Body"].read())


def generated(platform: Platform, **where: str) -> str:
    """The model's greedy answer to hello."""
    body = {"inputs": "hello", "parameters": {"max_new_tokens": 12, "do_sample": False}}
    answer = asked(platform, body, **where)
    return str((answer[0] if isinstance(answer, list) else answer)["generated_text"])


def chatted(platform: Platform, **where: str) -> str:
    """The model's greedy answer to hello in a chat."""
    messages = [{"role": "user", "content": "hello"}]
    answer = asked(platform, {"messages": messages, "max_tokens": 12, "temperature": 0}, **where)
    return str(answer["choices"][0]["message"]["content"])


def checked(answers: dict[str, Any], expected: dict[str, str]) -> None:
    """Each provider's answer is the expected text, whole and as a stream."""
    for name, text in expected.items():
        found = answers[name]
        assert found["text"] == text != "", (name, text, found)
        assert found["stream"] == found["text"], name
        assert found["finish"] in ("stop", "length")
        assert found["tokens"] > 0


def test_litellm_asks_a_component(platform: Platform) -> None:
    python = virtual_environment("litellm", *LITELLM[0], "boto3") / "python"
    place = f"{ENDPOINT}/{BASE}"
    where = {"EndpointName": ENDPOINT, "InferenceComponentName": BASE}
    names = [f"{it}/{place}" for it in ("sagemaker", "sagemaker_chat")]
    answers = run(platform, python, "sagemaker_litellm.py", *names)
    expected = [generated(platform, **where), chatted(platform, **where)]
    checked(answers, dict(zip(names, expected, strict=True)))


@pytest.mark.thorough
@pytest.mark.parametrize("packages", LITELLM, ids=lambda it: it[0])
def test_litellm_of_three_ages_asks_a_tgi_endpoint(
    platform: Platform, tgi: str, packages: tuple[str, ...]
) -> None:
    python = virtual_environment("litellm", *packages, "boto3") / "python"
    names = [f"sagemaker/{tgi}", f"sagemaker_chat/{tgi}"]
    answers = run(platform, python, "sagemaker_litellm.py", *names)
    expected = [generated(platform, EndpointName=tgi), chatted(platform, EndpointName=tgi)]
    checked(answers, dict(zip(names, expected, strict=True)))


HAYSTACK = ("amazon-sagemaker-haystack==2.0.0",)
MLFLOW = ("mlflow-skinny==3.17.2", "boto3", "pandas", "scipy")
MLFLOW_IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mlflow-pyfunc:3.17.2"
# The folder of MLflow's Python is on PATH, since its server is a program of that folder.
MLFLOW_RULE = """
[[image]]
pattern = "*/mlflow-pyfunc:*"
command = ["sh", "-c", "PATH={bin}:$PATH exec mlflow models serve --env-manager local \
--host 127.0.0.1 --port $SAGEMAKER_BIND_TO_PORT --model-uri $(readlink -f $HOSTELRY_MODEL_DIR)"]
[image.probe]
content_type = "application/json"
body = '{{"dataframe_split": {{"columns": ["x"], "data": [[1]]}}}}'
"""
LLAMA_INDEX = ("llama-index-core==0.14.25", "boto3")
LLAMA_INDEX_ALONE = (
    "llama-index-llms-sagemaker-endpoint==0.6.0",
    "llama-index-llms-llama-cpp==0.7.0",
)


@pytest.mark.thorough
def test_haystacks_generator_asks_a_tgi_endpoint(platform: Platform, tgi: str) -> None:
    python = virtual_environment("haystack", *HAYSTACK) / "python"
    reply = run(platform, python, "sagemaker_haystack.py", tgi)
    assert reply == generated(platform, EndpointName=tgi)


@pytest.mark.thorough
def test_llama_indexs_llm_asks_a_tgi_endpoint(platform: Platform, tgi: str) -> None:
    bin_folder = virtual_environment("llama-index", *LLAMA_INDEX, alone=LLAMA_INDEX_ALONE)
    reply = run(platform, bin_folder / "python", "sagemaker_llama_index.py", tgi)
    assert reply == generated(platform, EndpointName=tgi)


@pytest.mark.thorough
def test_mlflows_client_deploys_asks_updates_and_deletes(tmp_path: Path) -> None:
    bin_folder = virtual_environment("mlflow", *MLFLOW)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "images.toml").write_text(MLFLOW_RULE.format(bin=bin_folder))
    with Platform(home) as platform:
        python = bin_folder / "python"
        found = run(platform, python, "sagemaker_mlflow.py", MLFLOW_IMAGE, ROLE)
        assert found == {"asked": [2, 40], "listed": ["InService"], "again": [6]}
        assert platform.boto3("sagemaker").list_models()["Models"] == []
