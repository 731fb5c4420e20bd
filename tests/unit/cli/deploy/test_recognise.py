import bz2
import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

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
from hostelry.fleet.rules.frameworks import find_framework_image
from hostelry.fleet.rules.images import ImageRules, parse_repository, parse_tag
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


@cases(
    "name, content, expected",
    case("scikit-learn, protocol 4", "m.pkl", SKLEARN, ("sklearn", "1.2.2", 4)),
    case("scikit-learn, protocol 2", "m.pkl", SKLEARN_2, ("sklearn", "1.4.0", 13)),
    case("zlib", "m.joblib", zlib.compress(SKLEARN), ("sklearn", "1.2.2", 4)),
    case("gzip", "m.joblib", gzip.compress(SKLEARN), ("sklearn", "1.2.2", 4)),
    case("bz2", "m.joblib", bz2.compress(SKLEARN), ("sklearn", "1.2.2", 4)),
    case("a torn gzip is unknown", "m.joblib", b"\x1f\x8btorn", ("", None, None)),
    case("XGBoost's JSON", "m.json", XGBOOST_JSON, ("xgboost", "1.7", 4)),
    case("other JSON", "m.json", b'{"version": [1, 2]}', ("", "1.2", None)),
    case("XGBoost's UBJ", "m.ubj", XGBOOST_UBJ, ("xgboost", "3.0", 9)),
    case("the older binary", "xgboost-model", b"binf\0", ("xgboost", None, None)),
    case("both in a pickle", "m.pkl", BOTH, ("sklearn and xgboost", "1.2.2", None)),
    case("any other pickle", "m.pkl", b"\x80\x04cos\nsystem\n", ("", None, None)),
    case("TorchScript", "m.pt", TORCHSCRIPT, ("pytorch", None, None)),
    case("a state dict has no code", "m.pt", STATE_DICT, ("weights", None, None)),
    case("GGUF by its bytes", "m.bin", b"GGUF\3", ("gguf", None, None)),
)  # fmt: skip
def test_a_model_file_is_read_without_being_unpickled(
    name: str, content: bytes, expected: tuple[str, str | None, int | None]
) -> None:
    framework, version, features = expected
    wanted = ModelFormat(framework=framework, version=version, num_features=features)
    assert model_format(name, content) == wanted


@cases(
    "made_by, installed, expected",
    case("the same version", "1.2.2", (), "1.2"),
    case("else the next later one", "1.3.0", ("1.2",), "1.4"),
    case("numbers are not texts", "0.9", (), "1.0"),
    case("unknown: the latest that is installed", None, ("1.0", "1.2"), "1.2"),
    case("unknown and none installed: the latest", None, ("9.9",), "1.4"),
)
def test_the_runtime_of_a_version(
    made_by: str | None, installed: tuple[str, ...], expected: str
) -> None:
    assert served_version("sklearn", made_by, ["1.0", "1.2", "1.4"], installed) == expected


def test_a_model_of_a_later_version_than_any_runtime_is_refused() -> None:
    with pytest.raises(TerminalError, match=r"written by sklearn 1.6.1; .*--as sklearn:1.4"):
        served_version("sklearn", "1.6.1", ["1.2", "1.4"], ())


@cases(
    "source, kind, expected",
    case("a base LLM", llm("LlamaForCausalLM"), None, ("llm", "", Task.TEXT)),
    case("an LLM with a chat template", llm("LlamaForCausalLM", "chat_template.jinja"), None,
        ("llm", "", Task.CHAT)),
    case("an encoder", llm("BertModel"), None, ("llm", "", Task.VECTORS)),
    case("a classifier", llm("BertForSequenceClassification"), None, ("llm", "", Task.CLASSES)),
    case("an LLM that only vLLM reads", llm("PhiForCausalLM"), None, ("llm", "vllm", Task.TEXT)),
    case("another task", llm("ViTForImageClassification"), None,
        ("framework", "huggingface:4.51", Task.UNKNOWN)),
    case("a scikit-learn file", found(heads={"m.joblib": SKLEARN}), None,
        ("framework", "sklearn:1.2", None)),
    case("an XGBoost file", found(heads={"m.json": XGBOOST_JSON}), None,
        ("framework", "xgboost:1.7", None)),
    case("TorchScript, by what is installed", found(heads={"net.pt": TORCHSCRIPT}), None,
        ("framework", "pytorch:2.4", None)),
    case("a SavedModel", found("half/1/saved_model.pb"), None,
        ("framework", "tensorflow:2.19", None)),
    case("AutoGluon", found("p/predictor.pkl", "p/learner.pkl"), None,
        ("framework", "autogluon:1.3", None)),
    case("a graph", found("graph.yaml", "code/wines.py"), None, ("graph", "", None)),
    case("a Triton repository", found("scale/config.pbtxt", "scale/1/model.py"), None,
        ("triton", "triton", None)),
    case("code by what it imports", found(texts={"inference.py": "import torch\n"}), None,
        ("framework", "pytorch:2.4", None)),
    case("code that names no framework", found(texts={"code/inference.py": "import json\n"}), None,
        ("framework", "sklearn:1.2", None)),
    case("code beside a file of a version",
        found(texts={"inference.py": "import joblib, os"}, heads={"m.joblib": SKLEARN_2}), None,
        ("framework", "sklearn:1.4", None)),
    case("code before the model's files",
        found(texts={"inference.py": "from transformers import pipeline\nimport torch",
                              "config.json": LLAMA}, heads={"model.safetensors": b""}), None,
        ("framework", "huggingface:4.51", None)),
    case("what it installs is no runtime",
        found(texts={"inference.py": "import torch\nimport xgboost",
                              "requirements.txt": "xgboost==1.7\n"}), None,
        ("framework", "pytorch:2.4", None)),
    case("--as decides", found("weights.bin"), "sklearn:1.4", ("framework", "sklearn:1.4", None)),
    case("--as without a version takes the file's", found(heads={"m.pkl": SKLEARN}), "sklearn",
        ("framework", "sklearn:1.2", None)),
    case("--as where two are possible", found("graph.yaml", texts={"inference.py": ""}), "graph",
        ("graph", "", None)),
)  # fmt: skip
def test_a_source_is_recognised(
    source: Found, kind: str | None, expected: tuple[str, str, Task | None]
) -> None:
    it = recognise(source, kind, ALL)
    assert (it.kind.value, it.runtime, it.task) == expected


@cases(
    "source, kind, text",
    case("an empty folder", found(), None, "./m is empty"),
    case("nothing known: what was found, looked for, and the flag", found("a.txt", "b.csv"), None,
        r"has a.txt, b.csv, of which none is known. Looked for: graph.yaml.*--as llm"),
    case("a file that is no model", replace(found("README.md"), place=Origin.FILE), None,
        r"^./m is not a known model file. Looked for: "),
    case("an adapter alone", found("adapter_config.json", "adapter_model.safetensors"), None,
        "is a LoRA adapter: deploy its base model"),
    case("a graph, or code", found("graph.yaml", texts={"inference.py": ""}), None,
        r"may be a graph .* or a model with its own code"),
    case("a pickle of two frameworks", found(heads={"m.pkl": BOTH}), None, "--as sklearn:VERSION"),
    case("two files of scikit-learn", found(heads={"a.pkl": SKLEARN, "b.pkl": SKLEARN}), None,
        "loads one file"),
    case("files of two frameworks", found(heads={"a.pkl": SKLEARN, "b.json": XGBOOST_JSON}), None,
        r"a.pkl \(sklearn\), b.json \(xgboost\)"),
    case("ONNX", found(heads={"m.onnx": b"\x08\x08"}), None, "no server here reads ONNX by itself"),
    case("GGUF", found(heads={"m.gguf": b"GGUF"}), None, "GGUF is not read"),
    case("a state dict", found(heads={"net.pt": STATE_DICT}), None, "weights alone"),
    case("a Hugging Face folder without safetensors",
        found("pytorch_model.bin", texts={"config.json": LLAMA}), None, "from safetensors only"),
    case("a config.json that is a list", found("m.safetensors", texts={"config.json": "[1]"}), None,
        "config.json of ./m is not a JSON object"),
    case("a config.json that says nothing", found("m.safetensors", texts={"config.json": "{}"}),
        None, "neither architectures nor model_type"),
    case("--as", found("m.bin"), "onnx", "--as is 'onnx'; it must be one of llm"),
    case("--as with a version that there is not", found("m.bin"), "sklearn:9.9",
        "the runtimes of sklearn are 0.20"),
    case("code of two frameworks",
        found(texts={"inference.py": "import torch, os\nimport tensorflow"}), None,
        "--as pytorch or --as tensorflow"),
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
        served = find_framework_image(parse_repository(image), parse_tag(image))
        assert served is not None
        assert (served.framework, served.runtime) == (framework, f"{framework}-{version}")


@pytest.mark.parametrize("kind", [DeployKind.LLM, DeployKind.TRITON, DeployKind.GRAPH])
def test_the_image_of_a_built_in_server_is_served_by_it(kind: DeployKind) -> None:
    rule: Any = ImageRules().resolve(choose_image(Recognised(kind=kind, title=""), "us-east-1"))
    assert rule.kind == {"llm": "lmi"}.get(kind.value, kind.value)
