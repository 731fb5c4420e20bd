"""Triton: values of its protocol, its settings, its configuration, its program and its folders."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

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


@cases(
    "given, option",
    case("AWS's own", {}, "--backend-config=python,shm-default-byte-size=16777216"),
    case("no verbose lines", {}, "--log-verbose=0"),
    case("verbose, as AWS has it", {"LOG_VERBOSE": "true"}, "--log-verbose=1"),
    case("verbose, as Triton has it", {"LOG_VERBOSE": "3"}, "--log-verbose=3"),
    case("less in the log", {"LOG_INFO": "0"}, "--log-info=false"),
    case("regions", {"SHM_DEFAULT_BYTE_SIZE": "2097152"},
        "--backend-config=python,shm-default-byte-size=2097152"),
    case("their growth", {"SHM_GROWTH_BYTE_SIZE": "65536"},
        "--backend-config=python,shm-growth-byte-size=65536"),
    case("threads", {"THREAD_COUNT": "4"}, "--http-thread-count=4"),
    case("threads that copy", {"BUFFER_MANAGER_THREAD_COUNT": "2"},
        "--buffer-manager-thread-count=2"),
)  # fmt: skip
def test_options(given: dict[str, str], option: str) -> None:
    found = resolve({f"SAGEMAKER_TRITON_{name}": it for name, it in given.items()})
    assert option in found.options


def test_a_share_of_each_visible_accelerator() -> None:
    given = {"SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT": "0.5", "CUDA_VISIBLE_DEVICES": "4,7"}
    assert [it for it in resolve(given).options if "gpu" in it] == [
        "--model-load-gpu-limit=0:0.5", "--model-load-gpu-limit=1:0.5",
    ]  # fmt: skip


@cases(
    "name, value, reason",
    case("options of the server's", "ADDITIONAL_ARGS", "--http-address=0.0.0.0",
        "is not taken here"),
    case("a backend's version", "TENSORFLOW_VERSION", "1", "is not taken here"),
    case("no truth", "LOG_INFO", "loud", "must be true or false"),
    case("no number", "LOG_VERBOSE", "loud", "must be a number from 0 to 9"),
    case("too small a region", "SHM_DEFAULT_BYTE_SIZE", "1", "from 1048576"),
    case("more than all", "MODEL_LOAD_GPU_LIMIT", "2", "a part from 0 to 1"),
    case("answers in parts", "INFERENCE_TYPE", "generate_stream", "must be infer or generate"),
)  # fmt: skip
def test_settings_that_are_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(TerminalError, match=reason):
        resolve({f"SAGEMAKER_TRITON_{name}": value})


def test_settings_without_effect_are_named() -> None:
    given = {"SAGEMAKER_TRITON_GRPC_PORT": "1", "SAGEMAKER_TRITON_LOG_INFO": "1"}
    assert list_without_effect(given) == ["SAGEMAKER_TRITON_GRPC_PORT"]


@cases(
    "content_type, headers",
    case("JSON", "application/json", {"Content-Type": "application/json"}),
    case("which is the default", "text/csv", {"Content-Type": "application/json"}),
    case("binary", f"{BINARY}20",
        {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": "20"}),
    case("with a space", BINARY.replace(";", "; ") + "020",
        {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": "20"}),
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


@cases(
    "words, status",
    case("the model's own error", "ValueError: no", 400),
    case("PyTorch without memory", "CUDA out of memory. Tried", 507),
    case("Python without memory", "MemoryError: ", 507),
    case("a word that holds another", "in the room", 400),
)
def test_statuses_of_errors(words: str, status: int) -> None:
    assert get_error_status(words) == status


@cases(
    "config, found",
    case("free dimensions are 1", {"max_batch_size": 0, "input": [
        {"name": "x", "data_type": "TYPE_FP32", "dims": ["-1", "2"]}]},
        [("x", "FP32", [1, 2], [0, 0])]),
    case("a batch of one text; what is optional is left out", {"max_batch_size": 4, "input": [
        {"name": "s", "data_type": "TYPE_STRING", "dims": [1]},
        {"name": "b", "data_type": "TYPE_BOOL", "dims": [1], "optional": True}]},
        [("s", "BYTES", [1, 1], [""])]),
    case("not to be written in JSON",
        {"input": [{"name": "x", "data_type": "TYPE_FP16", "dims": [1]}]}, None),
    case("too large", {"input": [{"name": "x", "data_type": "TYPE_INT8", "dims": [10**9]}]}, None),
    case("ragged", {"input": [{"name": "x", "data_type": "TYPE_INT8", "dims": [1],
                             "allow_ragged_batch": True}]}, None),
    case("no input", {"input": []}, None),
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


@cases(
    "text, found",
    case("a string", 'name: "a"', {"name": ["a"]}),
    case("single quotes, a comment", "name: 'a' # b\n", {"name": ["a"]}),
    case("strings beside each other are one", 'name: "a" "b"', {"name": ["ab"]}),
    case("escapes", r'name: "a\"b\\"', {"name": ['a"b\\']}),
    case("a number", "max_batch_size: 8", {"max_batch_size": ["8"]}),
    case("a list", "dims: [ -1, 2 ]", {"dims": ["-1", "2"]}),
    case("a field that is repeated", "dims: -1 dims: 2", {"dims": ["-1", "2"]}),
    case("a message without a colon", 'a { b: "c" }', {"a": [{"b": ["c"]}]}),
    case("with one", 'a: { b: "c"; d: 1, }', {"a": [{"b": ["c"], "d": ["1"]}]}),
    case("angle brackets", "a < b: 1 >", {"a": [{"b": ["1"]}]}),
    case("a list of messages without a colon", "a [ { b: 1 }, { b: 2 } ]",
        {"a": [{"b": ["1"]}, {"b": ["2"]}]}),
    case("nothing", "", {}),
    case("a name", "kind: KIND_CPU", {"kind": ["KIND_CPU"]}),
)  # fmt: skip
def test_text(text: str, found: dict[str, Any]) -> None:
    assert parse_message(text) == found


@cases(
    "text, reason",
    case("no end", "a {\n b: 1", "line 2: the end where a field's name"),
    case("a string over two lines", 'name: "a\n"', "line 1: '\"' is not expected"),
    case("no value", "name\n: }", "line 2: } where a value"),
    case("a scalar without a colon", 'name "a"', 'line 1: "a" where a value'),
    case("no end of a list", "a: [1", "line 1: the end where a value"),
    case("an end without a beginning", "}", "line 1: } where a field's name"),
    case("deep", "a {" * 40, "more than 32 messages deep"),
    case("another sign", "a: $", "line 1: '[$]' is not expected"),
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


@cases(
    "has_server, runtime",
    case("the runtime is installed", False, "triton"),
    case("nothing is installed beside the operator's", True, None),
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
