"""Names of runtimes, pip's settings for uv, and interpreters of this machine."""

import os
import sys
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.base.pip_settings import parse_settings, uv_variables
from hostelry.runtimes.install import parse_lock, parse_python_version
from hostelry.runtimes.interpreters import find_interpreter
from hostelry.runtimes.recipes import best_device, find_recipe, folder_name, known_names


@cases(
    "name, folder",
    case("vLLM", "vllm", "vllm"),
    case("Triton", "triton", "triton"),
    case("a framework", "sklearn:1.2", "sklearn-1.2"),
    case("as the image's tag has it", "sklearn:1.2-1", "sklearn-1.2"),
    case("as the package has it", "sklearn:1.2.2", "sklearn-1.2"),
    case("a version of two digits", "tensorflow:2.10.1", "tensorflow-2.10"),
)
def test_names(name: str, folder: str) -> None:
    assert folder_name(name) == folder


@pytest.mark.parametrize("name", ["sklearn", "sklearn:1", "sklearn:9.9", "../x:1.2", "", "x" * 999])
def test_other_names(name: str) -> None:
    with pytest.raises(TerminalError, match=r"one of vllm, .*sklearn:0\.20"):
        folder_name(name)


def test_every_known_name_has_a_recipe_whose_folder_is_its_own() -> None:
    names = known_names()
    assert len({folder_name(it) for it in names}) == len(names)
    assert all(find_recipe(it, "cpu").packages for it in names)
    with pytest.raises(TerminalError, match="made for cpu only"):
        find_recipe("sklearn:1.2", "cuda")


@cases(
    "name, here, device",
    case("nothing for CUDA", "sklearn:1.2", "cuda", "cpu"),
    case("for CUDA where it is", "pytorch:2.6", "cuda", "cuda"),
    case("for CPUs elsewhere", "pytorch:2.6", "cpu", "cpu"),
)
def test_devices(name: str, here: str, device: str) -> None:
    assert best_device(name, here) == device


@cases(
    "name, device, first",
    case("a later build for CPUs before that for CUDA", "pytorch:2.6", "cpu",
        ["torch==2.6.0+cpu", "torch==2.13.0+cpu", "torch==2.6.0"]),
    case("no other version before torch.load changed", "pytorch:2.5", "cpu",
        ["torch==2.5.1+cpu", "torch==2.5.1"]),
    case("CUDA", "huggingface:4.51", "cuda", ["torch==2.6.0"]),
    case("a package for CPUs", "xgboost:3.0", "cpu", ["xgboost-cpu==3.0.5"]),
    case("which earlier ones have not", "xgboost:1.7", "cpu", ["xgboost==1.7.4"]),
)  # fmt: skip
def test_what_is_tried_in_turn(name: str, device: str, first: list[str]) -> None:
    found, recipe = [], find_recipe(name, device)
    while recipe.instead is not None:
        found.append(recipe.packages[0])
        recipe = recipe.instead
    assert [*found, recipe.packages[0]] == first


@cases(
    "name, companions",
    case("scikit-learn", "sklearn:1.2", {"flask", "pandas", "pyarrow", "scipy"}),
    case("XGBoost", "xgboost:3.0", {"flask", "matplotlib", "pandas"}),
    case("PyTorch", "pytorch:2.6", {"pandas", "opencv-python-headless", "h5py"}),
    case("Hugging Face", "huggingface:4.51", {"sentencepiece", "pandas"}),
    case("TensorFlow", "tensorflow:2.19", {"requests"}),
)
def test_a_runtime_has_what_awss_image_has_beside_the_framework(
    name: str, companions: set[str]
) -> None:
    assert {"boto3", "requests", "sagemaker-inference==1.10.1", *companions} <= set(
        find_recipe(name, "cpu").packages
    )


CONFIG = """
global.index-url='https://mirror.example/simple'
global.extra-index-url='file:///a https://b/simple'
global.find-links='/old'
:env:.find-links='/wheels'
global.cert='/etc/ca.pem'
global.timeout='60'
no setting at all
"""


def test_uv_looks_where_pip_looks() -> None:
    settings = parse_settings(CONFIG)
    assert uv_variables(settings) == {
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_INDEX": "file:///a https://b/simple",
        "UV_FIND_LINKS": "/wheels",
        "SSL_CERT_FILE": "/etc/ca.pem",
    }
    assert uv_variables(parse_settings("")) == {}


def test_the_first_version_that_is_here_is_taken(tmp_path: Path) -> None:
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    assert find_interpreter(["2.0", own], env) == Path(sys.executable)
    pretender = tmp_path / "python2.0"
    pretender.write_text("#!/bin/sh\necho 2.0\n")
    pretender.chmod(0o755)
    assert find_interpreter(["2.0", own], env) == pretender
    pretender.write_text("#!/bin/sh\necho 'command not found' >&2; exit 127\n")
    assert find_interpreter(["2.0", own], env) == Path(sys.executable)
    with pytest.raises(TerminalError, match=r"Python 2\.0, and this machine has none"):
        find_interpreter(["2.0"], {**env, "PATH": f"{tmp_path}{os.pathsep}"})


def test_what_an_environment_holds_is_read_from_its_files() -> None:
    lock = "numpy==1.24.4 \\\n    --hash=sha256:0\nboto3==1.3 ; python_version < '4'\n# x==1\n"
    assert parse_lock(lock) == {"numpy": "1.24.4", "boto3": "1.3"}
    assert parse_python_version("home = /x\nversion_info = 3.8.18\n") == "3.8.18"
    assert parse_python_version("version = 3.11.7\n") == "3.11.7"
    assert parse_python_version("home = /x\n") == ""
