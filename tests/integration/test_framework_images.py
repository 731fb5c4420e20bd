"""AWS's framework images through boto3: models trained in the runtimes that serve them.

XGBoost's runtime is installed here. Those of some GB serve where they are in HOSTELRY_RUNTIMES_DIR:

    hostelry runtimes install pytorch:2.6    # tensorflow:2.19, huggingface:4.51, autogluon:1.3
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration.framework_models import trained
from tests.integration.framework_rig import (
    Deployer,
    files_of,
    runtimes_of_tests,
    runtimes_with,
)
from tests.integration.platform import Platform

from hostelry.base.runtimes import VARIABLE, installed, runtime_python
from hostelry.runtimes.recipes import folder_name

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
ALGORITHMS = "246618743249.dkr.ecr.us-west-2.amazonaws.com"
DEEP_LEARNING = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
INSTALLED = ("xgboost:1.7",)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A framework's image; `code` makes what it predicts twice as much, or says OWN."""

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


def is_here(name: str) -> bool:
    """Whether the runtime is installed by these tests, or was."""
    return name in INSTALLED or installed(runtimes_of_tests(), folder_name(name)) is not None


@pytest.fixture(scope="module")
def deployer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployer]:
    environment = {VARIABLE: str(runtimes_with(*INSTALLED)), "HOSTELRY_CUSTOM_CODE": "trusted"}
    home = tmp_path_factory.mktemp("home") / "home"
    with Platform(home, environment=environment) as platform:
        yield Deployer(platform)


def numbers(value: Any) -> list[float]:
    """The numbers of an answer, in order."""
    if isinstance(value, dict):
        return numbers(value.get("score", list(value.values())))
    if isinstance(value, list):
        return [it for each in value for it in numbers(each)]
    return [float(value)]


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                not is_here(case.runtime), reason=f"hostelry runtimes install {case.runtime}"
            ),
        )
        for name, case in CASES.items()
    ],
)
def test_a_model_answers_as_its_framework_does(
    deployer: Deployer, framework: str, tmp_path: Path
) -> None:
    case = CASES[framework]
    python = runtime_python(runtimes_of_tests(), folder_name(case.runtime))
    known = trained(python, framework, tmp_path / "model")
    rows, predicted = known["rows"], numbers(known["predicted"])
    files = files_of(tmp_path / "model")
    names = (f"{framework}-default", f"{framework}-own")
    deployer.put(names[0], **files)
    deployer.put(names[1], **files, **{"code/inference.py": case.code.encode()})
    for name in names:
        deployer.begin(name, name, case.image, **case.environment)
    for name in names:
        found = deployer.settled(name)
        assert found["EndpointStatus"] == "InService", found
    answer = deployer.invoke(names[0], *default_body(framework, rows))
    assert numbers(json.loads(answer)) == pytest.approx(predicted, abs=1e-5)
    answer = deployer.invoke(names[1], "application/json", json.dumps(rows).encode())
    assert numbers(json.loads(answer)) == pytest.approx([2 * it for it in predicted], abs=1e-5)
    for name in names:
        deployer.delete(name)


def default_body(framework: str, rows: Any) -> tuple[str, bytes]:
    """What clients of the framework's image send without code of their own."""
    if framework in ("xgboost", "autogluon"):
        return "text/csv", "\n".join(",".join(map(str, row)) for row in rows).encode()
    named = {"tensorflow": {"instances": rows}, "huggingface": {"inputs": rows}}
    return "application/json", json.dumps(named.get(framework, rows)).encode()


def test_an_image_without_a_runtime_fails_with_those_that_can_be_made(deployer: Deployer) -> None:
    deployer.put("none", model=b"")
    found = deployer.deployed("old", "none", f"{ALGORITHMS}/sagemaker-xgboost:0.90-2-cpu-py3")
    assert found["EndpointStatus"] == "Failed"
    assert "xgboost:0.90; of xgboost there are 1.2" in found["FailureReason"]
