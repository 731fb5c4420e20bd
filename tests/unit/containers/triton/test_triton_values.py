"""Triton's settings, content types, errors, requests of zeros, and metrics: pure values."""

from typing import Any

import pytest

from hostelry.base.errors import TerminalError
from hostelry.containers.triton.__main__ import merge_pages
from hostelry.containers.triton.settings import list_without_effect, resolve
from hostelry.containers.triton.triton_models import (
    BINARY,
    ContentTypeError,
    get_error_status,
    to_content_type,
    to_triton_headers,
)
from hostelry.containers.triton.triton_process import build_zero_request


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
