import bz2
import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.files import FoundFile
from hostelry.cli.deploy.model_formats import (
    DECODERS,
    ENCODERS,
    ModelFormat,
    Task,
    model_format,
    served_version,
)
from hostelry.cli.deploy.plan import FRAMEWORK_IMAGES, choose_image
from hostelry.cli.deploy.recognise import DeployKind, Here, Recognised, recognise
from hostelry.cli.deploy.source import Found, Origin
from hostelry.engine.models.encoder_spec import FAMILIES
from hostelry.engine.models.registry import ARCHITECTURES
from hostelry.fleet.rules.frameworks import framework_image
from hostelry.fleet.rules.images import ImageRules, repository_of, tag_of
from hostelry.runtimes.recipes import known_versions

# As pickle's protocol 4 writes the end of an estimator's state.
SKLEARN = (
    b"\x80\x04\x8c\x1asklearn.linear_model._base\x94\x8c\x10LinearRegression\x94"
    b"\x8c\x0en_features_in_\x94K\x04\x8c\x10_sklearn_version\x94\x8c\x051.2.2\x94ub."
)
# As protocol 2 does.
SKLEARN_2 = (
    b"\x80\x02csklearn.linear_model._base\nLinearRegression\n"
    b"X\x0e\x00\x00\x00n_features_in_q\x07K\x0dX\x10\x00\x00\x00_sklearn_versionq\x08X\x05\x00\x00\x00"
    b"1.4.0q\tub."
)
XGBOOST_JSON = b'{"learner":{"learner_model_param":{"num_feature":"4"}},"version":[1,7,6]}'
XGBOOST_UBJ = (
    b"{L\x00\x00\x00\x00\x00\x00\x00\x07learner{L\x00\x00\x00\x00\x00\x00\x00\x0bnum_featureSL"
    b"\x00\x00\x00\x00\x00\x00\x00\x019}L\x00\x00\x00\x00\x00\x00\x00\x07version"
    b"[#L\x00\x00\x00\x00\x00\x00\x00\x03i\x03i\x00i\x02}"
)
TORCHSCRIPT = b"PK\x03\x04" + b"net/code/__torch__.py" + b"net/constants.pkl"
STATE_DICT = b"PK\x03\x04" + b"net/data.pkl"
BOTH = SKLEARN + b"cxgboost.sklearn\nXGBClassifier\n"
LLAMA = json.dumps({"architectures": ["LlamaForCausalLM"]})
ALL = Here(runtimes=("sklearn-1.2", "xgboost-1.7", "pytorch-2.4", "vllm"))


def found(
    *names: str, texts: Mapping[str, str] | None = None, heads: Mapping[str, bytes] | None = None
) -> Found:
    every = [*names, *(texts or {}), *(heads or {})]
    files = tuple(FoundFile(name=it, size_bytes=10, path=f"/m/{it}") for it in every)
    return Found(
        given="./m", place=Origin.FOLDER, files=files, texts=texts or {}, heads=heads or {}
    )


def llm(architecture: str, *more: str) -> Found:
    config = json.dumps({"architectures": [architecture]})
    return found("model.safetensors", *more, texts={"config.json": config})


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        pytest.param("m.pkl", SKLEARN, ("sklearn", "1.2.2", 4), id="scikit-learn, protocol 4"),
        pytest.param("m.pkl", SKLEARN_2, ("sklearn", "1.4.0", 13), id="scikit-learn, protocol 2"),
        pytest.param("m.joblib", zlib.compress(SKLEARN), ("sklearn", "1.2.2", 4), id="zlib"),
        pytest.param("m.joblib", gzip.compress(SKLEARN), ("sklearn", "1.2.2", 4), id="gzip"),
        pytest.param("m.joblib", bz2.compress(SKLEARN), ("sklearn", "1.2.2", 4), id="bz2"),
        pytest.param("m.joblib", b"\x1f\x8btorn", ("", None, None), id="a torn gzip is unknown"),
        pytest.param("m.json", XGBOOST_JSON, ("xgboost", "1.7", 4), id="XGBoost's JSON"),
        pytest.param("m.json", b'{"version": [1, 2]}', ("", "1.2", None), id="other JSON"),
        pytest.param("m.ubj", XGBOOST_UBJ, ("xgboost", "3.0", 9), id="XGBoost's UBJ"),
        pytest.param("xgboost-model", b"binf\0", ("xgboost", None, None), id="the older binary"),
        pytest.param("m.pkl", BOTH, ("sklearn and xgboost", "1.2.2", None), id="both in a pickle"),
        pytest.param("m.pkl", b"\x80\x04cos\nsystem\n", ("", None, None), id="any other pickle"),
        pytest.param("m.pt", TORCHSCRIPT, ("pytorch", None, None), id="TorchScript"),
        pytest.param("m.pt", STATE_DICT, ("weights", None, None), id="a state dict has no code"),
        pytest.param("m.bin", b"GGUF\3", ("gguf", None, None), id="GGUF by its bytes"),
    ],
)  # fmt: skip
def test_a_model_file_is_read_without_being_unpickled(
    name: str, content: bytes, expected: tuple[str, str | None, int | None]
) -> None:
    framework, version, features = expected
    wanted = ModelFormat(framework=framework, version=version, num_features=features)
    assert model_format(name, content) == wanted


@pytest.mark.parametrize(
    ("made_by", "installed", "expected"),
    [
        pytest.param("1.2.2", (), "1.2", id="the same version"),
        pytest.param("1.3.0", ("1.2",), "1.4", id="else the next later one"),
        pytest.param("0.9", (), "1.0", id="numbers are not texts"),
        pytest.param(None, ("1.0", "1.2"), "1.2", id="unknown: the latest that is installed"),
        pytest.param(None, ("9.9",), "1.4", id="unknown and none installed: the latest"),
    ],
)
def test_the_runtime_of_a_version(
    made_by: str | None, installed: tuple[str, ...], expected: str
) -> None:
    assert served_version("sklearn", made_by, ["1.0", "1.2", "1.4"], installed) == expected


def test_a_model_of_a_later_version_than_any_runtime_is_refused() -> None:
    with pytest.raises(TerminalError, match=r"written by sklearn 1.6.1; .*--as sklearn:1.4"):
        served_version("sklearn", "1.6.1", ["1.2", "1.4"], ())


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        pytest.param(llm("LlamaForCausalLM"), None, ("llm", "", Task.TEXT), id="a base LLM"),
        pytest.param(llm("LlamaForCausalLM", "chat_template.jinja"), None, ("llm", "", Task.CHAT),
                     id="an LLM with a chat template"),
        pytest.param(llm("BertModel"), None, ("llm", "", Task.VECTORS), id="an encoder"),
        pytest.param(llm("BertForSequenceClassification"), None, ("llm", "", Task.CLASSES),
                     id="a classifier"),
        pytest.param(llm("PhiForCausalLM"), None, ("llm", "vllm", Task.TEXT),
                     id="an LLM that only vLLM reads"),
        pytest.param(llm("ViTForImageClassification"), None,
                     ("framework", "huggingface:4.51", Task.UNKNOWN), id="another task"),
        pytest.param(found(heads={"m.joblib": SKLEARN}), None, ("framework", "sklearn:1.2", None),
                     id="a scikit-learn file"),
        pytest.param(found(heads={"m.json": XGBOOST_JSON}), None,
                     ("framework", "xgboost:1.7", None), id="an XGBoost file"),
        pytest.param(found(heads={"net.pt": TORCHSCRIPT}), None,
                     ("framework", "pytorch:2.4", None), id="TorchScript, by what is installed"),
        pytest.param(found("half/1/saved_model.pb"), None,
                     ("framework", "tensorflow:2.19", None), id="a SavedModel"),
        pytest.param(found("p/predictor.pkl", "p/learner.pkl"), None,
                     ("framework", "autogluon:1.3", None), id="AutoGluon"),
        pytest.param(found("graph.yaml", "code/wines.py"), None, ("graph", "", None), id="a graph"),
        pytest.param(found("scale/config.pbtxt", "scale/1/model.py"), None,
                     ("triton", "triton", None), id="a Triton repository"),
        pytest.param(found(texts={"inference.py": "import torch\n"}), None,
                     ("framework", "pytorch:2.4", None), id="code by what it imports"),
        pytest.param(found(texts={"code/inference.py": "import json\n"}), None,
                     ("framework", "sklearn:1.2", None), id="code that names no framework"),
        pytest.param(found(texts={"inference.py": "import joblib, os"},
                           heads={"m.joblib": SKLEARN_2}), None,
                     ("framework", "sklearn:1.4", None), id="code beside a file of a version"),
        pytest.param(found(texts={"inference.py": "from transformers import pipeline\nimport torch",
                                  "config.json": LLAMA}, heads={"model.safetensors": b""}), None,
                     ("framework", "huggingface:4.51", None), id="code before the model's files"),
        pytest.param(found(texts={"inference.py": "import torch\nimport xgboost",
                                  "requirements.txt": "xgboost==1.7\n"}), None,
                     ("framework", "pytorch:2.4", None), id="what it installs is no runtime"),
        pytest.param(found("weights.bin"), "sklearn:1.4", ("framework", "sklearn:1.4", None),
                     id="--as decides"),
        pytest.param(found(heads={"m.pkl": SKLEARN}), "sklearn", ("framework", "sklearn:1.2", None),
                     id="--as without a version takes the file's"),
        pytest.param(found("graph.yaml", texts={"inference.py": ""}), "graph", ("graph", "", None),
                     id="--as where two are possible"),
    ],
)  # fmt: skip
def test_a_source_is_recognised(
    source: Found, kind: str | None, expected: tuple[str, str, Task | None]
) -> None:
    it = recognise(source, kind, ALL)
    assert (it.kind.value, it.runtime, it.task) == expected


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        pytest.param(found(), None, "./m is empty", id="an empty folder"),
        pytest.param(found("a.txt", "b.csv"), None,
                     r"has a.txt, b.csv, of which none is known. Looked for: graph.yaml.*--as llm",
                     id="nothing known: what was found, looked for, and the flag"),
        pytest.param(replace(found("README.md"), place=Origin.FILE), None,
                     r"^./m is not a known model file. Looked for: ", id="a file that is no model"),
        pytest.param(found("adapter_config.json", "adapter_model.safetensors"), None,
                     "is a LoRA adapter: deploy its base model", id="an adapter alone"),
        pytest.param(found("graph.yaml", texts={"inference.py": ""}), None,
                     r"may be a graph .* or a model with its own code", id="a graph, or code"),
        pytest.param(found(heads={"m.pkl": BOTH}), None, "--as sklearn:VERSION",
                     id="a pickle of two frameworks"),
        pytest.param(found(heads={"a.pkl": SKLEARN, "b.pkl": SKLEARN}), None, "loads one file",
                     id="two files of scikit-learn"),
        pytest.param(found(heads={"a.pkl": SKLEARN, "b.json": XGBOOST_JSON}), None,
                     r"a.pkl \(sklearn\), b.json \(xgboost\)", id="files of two frameworks"),
        pytest.param(found(heads={"m.onnx": b"\x08\x08"}), None,
                     "no server here reads ONNX by itself", id="ONNX"),
        pytest.param(found(heads={"m.gguf": b"GGUF"}), None, "GGUF is not read", id="GGUF"),
        pytest.param(found(heads={"net.pt": STATE_DICT}), None, "weights alone", id="a state dict"),
        pytest.param(found("pytorch_model.bin", texts={"config.json": LLAMA}), None,
                     "from safetensors only", id="a Hugging Face folder without safetensors"),
        pytest.param(found("m.safetensors", texts={"config.json": "[1]"}), None,
                     "config.json of ./m is not a JSON object", id="a config.json that is a list"),
        pytest.param(found("m.safetensors", texts={"config.json": "{}"}), None,
                     "neither architectures nor model_type", id="a config.json that says nothing"),
        pytest.param(found("m.bin"), "onnx", "--as is 'onnx'; it must be one of llm", id="--as"),
        pytest.param(found("m.bin"), "sklearn:9.9", "the runtimes of sklearn are 0.20",
                     id="--as with a version that there is not"),
        pytest.param(found(texts={"inference.py": "import torch, os\nimport tensorflow"}), None,
                     "--as pytorch or --as tensorflow", id="code of two frameworks"),
    ],
)  # fmt: skip
def test_what_is_not_deployed_is_refused_with_what_would_help(
    source: Found, kind: str | None, text: str
) -> None:
    with pytest.raises(TerminalError, match=text):
        recognise(source, kind, ALL)


def test_an_llm_that_needs_vllm_is_refused_without_it() -> None:
    with pytest.raises(TerminalError, match="hostelry runtimes install vllm"):
        recognise(llm("PhiForCausalLM"), None, Here())


def test_the_engines_architectures_are_those_of_its_registry() -> None:
    assert set(DECODERS) == set(ARCHITECTURES)
    assert set(ENCODERS) == {it.name for it in FAMILIES}


@pytest.mark.parametrize("framework", FRAMEWORK_IMAGES)
def test_an_image_of_each_runtime_is_served_by_it(framework: str) -> None:
    for version in known_versions(framework):
        it = Recognised(kind=DeployKind.FRAMEWORK, title="", framework=framework, version=version)
        image = choose_image(it, "eu-west-1")
        served = framework_image(repository_of(image), tag_of(image))
        assert served is not None
        assert (served.framework, served.runtime) == (framework, f"{framework}-{version}")


@pytest.mark.parametrize("kind", [DeployKind.LLM, DeployKind.TRITON, DeployKind.GRAPH])
def test_the_image_of_a_built_in_server_is_served_by_it(kind: DeployKind) -> None:
    rule: Any = ImageRules().resolve(choose_image(Recognised(kind=kind, title=""), "us-east-1"))
    assert rule.kind == {"llm": "lmi"}.get(kind.value, kind.value)
