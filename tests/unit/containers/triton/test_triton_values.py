"""Triton: values of its protocol, its settings, its configuration, its program and its folders."""

import os
from pathlib import Path
from typing import Any

import pytest

from hostelry.base.errors import TerminalError
from hostelry.containers.triton.__main__ import merge_pages
from hostelry.containers.triton.program import find_program
from hostelry.containers.triton.settings import list_without_effect, resolve
from hostelry.containers.triton.text_format import TextFormatError, parse_message
from hostelry.containers.triton.triton_models import (
    BINARY,
    ContentTypeError,
    get_error_status,
    to_content_type,
    to_triton_headers,
)
from hostelry.containers.triton.triton_process import (
    build_zero_request,
    list_environments,
    list_used,
    remove_environments,
)
from hostelry.domain.model import Container
from hostelry.fleet.agent.orders import resolve_rule

IMAGE = "nvcr.io/nvidia/tritonserver:24.10-py3"
TRUSTED = {"HOSTELRY_CUSTOM_CODE": "trusted"}


@pytest.mark.parametrize(
    ("given", "option"),
    [
        pytest.param({}, "--backend-config=python,shm-default-byte-size=16777216", id="AWS's own"),
        pytest.param({}, "--log-verbose=0", id="no verbose lines"),
        pytest.param({"LOG_VERBOSE": "true"}, "--log-verbose=1", id="verbose, as AWS has it"),
        pytest.param({"LOG_VERBOSE": "3"}, "--log-verbose=3", id="verbose, as Triton has it"),
        pytest.param({"LOG_INFO": "0"}, "--log-info=false", id="less in the log"),
        pytest.param({"SHM_DEFAULT_BYTE_SIZE": "2097152"},
                     "--backend-config=python,shm-default-byte-size=2097152", id="regions"),
        pytest.param({"SHM_GROWTH_BYTE_SIZE": "65536"},
                     "--backend-config=python,shm-growth-byte-size=65536", id="their growth"),
        pytest.param({"THREAD_COUNT": "4"}, "--http-thread-count=4", id="threads"),
        pytest.param({"BUFFER_MANAGER_THREAD_COUNT": "2"}, "--buffer-manager-thread-count=2",
                     id="threads that copy"),
    ],
)  # fmt: skip
def test_options(given: dict[str, str], option: str) -> None:
    found = resolve({f"SAGEMAKER_TRITON_{name}": it for name, it in given.items()})
    assert option in found.options


def test_a_share_of_each_visible_accelerator() -> None:
    given = {"SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT": "0.5", "CUDA_VISIBLE_DEVICES": "4,7"}
    assert [it for it in resolve(given).options if "gpu" in it] == [
        "--model-load-gpu-limit=0:0.5", "--model-load-gpu-limit=1:0.5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        pytest.param("ADDITIONAL_ARGS", "--http-address=0.0.0.0", "is not taken here",
                     id="options of the server's"),
        pytest.param("TENSORFLOW_VERSION", "1", "is not taken here", id="a backend's version"),
        pytest.param("LOG_INFO", "loud", "must be true or false", id="no truth"),
        pytest.param("LOG_VERBOSE", "loud", "must be a number from 0 to 9", id="no number"),
        pytest.param("SHM_DEFAULT_BYTE_SIZE", "1", "from 1048576", id="too small a region"),
        pytest.param("MODEL_LOAD_GPU_LIMIT", "2", "a part from 0 to 1", id="more than all"),
        pytest.param("INFERENCE_TYPE", "generate_stream", "must be infer or generate",
                     id="answers in parts"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(TerminalError, match=reason):
        resolve({f"SAGEMAKER_TRITON_{name}": value})


def test_settings_without_effect_are_named() -> None:
    given = {"SAGEMAKER_TRITON_GRPC_PORT": "1", "SAGEMAKER_TRITON_LOG_INFO": "1"}
    assert list_without_effect(given) == ["SAGEMAKER_TRITON_GRPC_PORT"]


@pytest.mark.parametrize(
    ("content_type", "headers"),
    [
        pytest.param("application/json", {"Content-Type": "application/json"}, id="JSON"),
        pytest.param("text/csv", {"Content-Type": "application/json"}, id="which is the default"),
        pytest.param(f"{BINARY}20", {"Content-Type": "application/octet-stream",
                                     "Inference-Header-Content-Length": "20"}, id="binary"),
        pytest.param(BINARY.replace(";", "; ") + "020",
                     {"Content-Type": "application/octet-stream",
                      "Inference-Header-Content-Length": "20"}, id="with a space"),
    ],
)  # fmt: skip
def test_content_types_of_requests(content_type: str, headers: dict[str, str]) -> None:
    assert to_triton_headers(content_type, 100) == headers


@pytest.mark.parametrize("size", ["", "x", "-1", "101", "1\r\nX: y", "9" * 20])
def test_sizes_that_are_none(size: str) -> None:
    with pytest.raises(ContentTypeError, match="from 0 to the body's 100 bytes"):
        to_triton_headers(f"{BINARY}{size}", 100)


def test_content_types_of_answers() -> None:
    assert to_content_type({"content-type": "x"}) == "application/json"
    assert to_content_type({"inference-header-content-length": "7"}) == f"{BINARY}7"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        pytest.param("ValueError: no", 400, id="the model's own error"),
        pytest.param("CUDA out of memory. Tried", 507, id="PyTorch without memory"),
        pytest.param("MemoryError: ", 507, id="Python without memory"),
        pytest.param("in the room", 400, id="a word that holds another"),
    ],
)
def test_statuses_of_errors(words: str, status: int) -> None:
    assert get_error_status(words) == status


@pytest.mark.parametrize(
    ("config", "found"),
    [
        pytest.param({"max_batch_size": 0, "input": [
            {"name": "x", "data_type": "TYPE_FP32", "dims": ["-1", "2"]}]},
            [("x", "FP32", [1, 2], [0, 0])], id="free dimensions are 1"),
        pytest.param({"max_batch_size": 4, "input": [
            {"name": "s", "data_type": "TYPE_STRING", "dims": [1]},
            {"name": "b", "data_type": "TYPE_BOOL", "dims": [1], "optional": True}]},
            [("s", "BYTES", [1, 1], [""])], id="a batch of one text; what is optional is left out"),
        pytest.param({"input": [{"name": "x", "data_type": "TYPE_FP16", "dims": [1]}]}, None,
                     id="not to be written in JSON"),
        pytest.param({"input": [{"name": "x", "data_type": "TYPE_INT8", "dims": [10**9]}]}, None,
                     id="too large"),
        pytest.param({"input": [{"name": "x", "data_type": "TYPE_INT8", "dims": [1],
                                 "allow_ragged_batch": True}]}, None, id="ragged"),
        pytest.param({"input": []}, None, id="no input"),
    ],
)  # fmt: skip
def test_requests_of_zeros(config: dict[str, Any], found: list[Any] | None) -> None:
    request = build_zero_request(config)
    if found is None:
        assert request is None
        return
    assert request is not None
    inputs = request["inputs"]
    assert [(it["name"], it["datatype"], it["shape"], it["data"]) for it in inputs] == found


PAGE = """# HELP nv_count Number of inferences
# TYPE nv_count counter
nv_count{model="m",version="1"} 2
# HELP nv_times Times
# TYPE nv_times summary
nv_times_count{model="m"} 1
nv_times_sum{model="m"} 5
# HELP nv_cpu_utilization CPU
# TYPE nv_cpu_utilization gauge
nv_cpu_utilization 0.5
nv_pinned_memory_pool_total_bytes 0
nonsense
"""


def test_metrics_of_several_servers_are_one_page() -> None:
    assert merge_pages({"a": PAGE, 'b"': PAGE}).splitlines() == [
        "# HELP nv_count Number of inferences",
        "# TYPE nv_count counter",
        'nv_count{target_model="a",model="m",version="1"} 2',
        'nv_count{target_model="b\\"",model="m",version="1"} 2',
        "# HELP nv_times Times",
        "# TYPE nv_times summary",
        'nv_times_count{target_model="a",model="m"} 1',
        'nv_times_sum{target_model="a",model="m"} 5',
        'nv_times_count{target_model="b\\"",model="m"} 1',
        'nv_times_sum{target_model="b\\"",model="m"} 5',
    ]
    assert 'nv_count{model="m",version="1"} 2\n' in merge_pages({"": PAGE})
    assert merge_pages({}) == ""


def test_empty_ones_and_used_ones_are_removed_and_no_others(tmp_path: Path) -> None:
    names = [f"python_env_{it}aaaaa" for it in "abcd"]
    for name in (*names, "python_env_toolong", "other"):
        (tmp_path / name).mkdir()
    for name in names[1:3]:
        (tmp_path / name / "0").mkdir()
    (tmp_path / "python_env_linked").symlink_to(tmp_path / "other")
    assert list_environments(tmp_path) == set(names)
    remove_environments([*names[:3], "other", "../x"], names[1:2], tmp_path)
    assert list_environments(tmp_path) == set(names[2:])
    assert (tmp_path / "other").is_dir()


def test_a_process_without_one_uses_none() -> None:
    assert list_used([os.getpid(), 1 << 30]) == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param('name: "a"', {"name": ["a"]}, id="a string"),
        pytest.param("name: 'a' # b\n", {"name": ["a"]}, id="single quotes, a comment"),
        pytest.param('name: "a" "b"', {"name": ["ab"]}, id="strings beside each other are one"),
        pytest.param(r'name: "a\"b\\"', {"name": ['a"b\\']}, id="escapes"),
        pytest.param("max_batch_size: 8", {"max_batch_size": ["8"]}, id="a number"),
        pytest.param("dims: [ -1, 2 ]", {"dims": ["-1", "2"]}, id="a list"),
        pytest.param("dims: -1 dims: 2", {"dims": ["-1", "2"]}, id="a field that is repeated"),
        pytest.param('a { b: "c" }', {"a": [{"b": ["c"]}]}, id="a message without a colon"),
        pytest.param('a: { b: "c"; d: 1, }', {"a": [{"b": ["c"], "d": ["1"]}]}, id="with one"),
        pytest.param("a < b: 1 >", {"a": [{"b": ["1"]}]}, id="angle brackets"),
        pytest.param("a [ { b: 1 }, { b: 2 } ]", {"a": [{"b": ["1"]}, {"b": ["2"]}]},
                     id="a list of messages without a colon"),
        pytest.param("", {}, id="nothing"),
        pytest.param("kind: KIND_CPU", {"kind": ["KIND_CPU"]}, id="a name"),
    ],
)  # fmt: skip
def test_text(text: str, found: dict[str, Any]) -> None:
    assert parse_message(text) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("a {\n b: 1", "line 2: the end where a field's name", id="no end"),
        pytest.param('name: "a\n"', "line 1: '\"' is not expected", id="a string over two lines"),
        pytest.param("name\n: }", "line 2: } where a value", id="no value"),
        pytest.param('name "a"', 'line 1: "a" where a value', id="a scalar without a colon"),
        pytest.param("a: [1", "line 1: the end where a value", id="no end of a list"),
        pytest.param("}", "line 1: } where a field's name", id="an end without a beginning"),
        pytest.param("a {" * 40, "more than 32 messages deep", id="deep"),
        pytest.param("a: $", "line 1: '[$]' is not expected", id="another sign"),
    ],
)
def test_no_message(text: str, reason: str) -> None:
    with pytest.raises(TextFormatError, match=reason):
        parse_message(text)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A tritonserver of the operator's."""
    program = tmp_path / "bin" / "tritonserver"
    for name in ("python", "onnxruntime", "empty", "vllm"):
        (tmp_path / "backends" / name).mkdir(parents=True)
    for file in ("python/libtriton_python.so", "onnxruntime/libtriton_onnxruntime.so",
                 "vllm/model.py"):  # fmt: skip
        (tmp_path / "backends" / file).touch()
    program.parent.mkdir()
    program.touch(0o755)
    return program


def test_the_operators_server_comes_first_with_its_backends(server: Path, tmp_path: Path) -> None:
    env = {"PATH": f"/none:{server.parent}", "LD_LIBRARY_PATH": "/opt/lib", "PYTHONPATH": "/x"}
    found = find_program(env, tmp_path)
    assert found.path == server
    assert found.backend_names == {"python", "onnxruntime", "vllm"}
    assert found.variables["LD_LIBRARY_PATH"] == "/opt/lib"
    assert "PYTHONPATH" not in found.variables


def test_without_any_the_failure_names_the_command_that_installs_one(tmp_path: Path) -> None:
    env = {"PATH": "/none", "HOSTELRY_RUNTIMES_DIR": str(tmp_path)}
    with pytest.raises(TerminalError, match="hostelry runtimes install triton"):
        find_program(env, tmp_path)


@pytest.mark.parametrize(
    ("has_server", "runtime"),
    [
        pytest.param(False, "triton", id="the runtime is installed"),
        pytest.param(True, None, id="nothing is installed beside the operator's"),
    ],
)
def test_a_copy_needs_the_runtime_only_without_a_server(
    has_server: bool, runtime: str | None, server: Path, tmp_path: Path
) -> None:
    operator = {**TRUSTED, "PATH": str(server.parent) if has_server else "/none"}
    rule = resolve_rule(
        Container(image=IMAGE), tmp_path / "none.toml", operator, no_own_user="none"
    )
    assert (rule.kind, rule.runtime) == ("triton", runtime)


def test_models_are_code_and_need_a_user_or_the_operators_word(tmp_path: Path) -> None:
    with pytest.raises(TerminalError, match="HOSTELRY_CUSTOM_CODE=trusted"):
        resolve_rule(Container(image=IMAGE), tmp_path / "none.toml", {}, no_own_user="none")
    assert resolve_rule(Container(image=IMAGE), tmp_path / "none.toml", {}, no_own_user=None)
