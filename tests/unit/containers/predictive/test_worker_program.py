"""The program in a runtime's interpreter: its Python, its messages, and batches by rows."""

import ast
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hostelry.containers.predictive import worker
from hostelry.containers.predictive.worker import model_serving, serving
from hostelry.containers.predictive.worker.model_serving import to_bytes
from hostelry.containers.predictive.worker_pool import BatchLimits, wait_s

FILES = sorted(Path(worker.__file__).parent.glob("*.py"))
STANDARD = {
    *("__future__", "argparse", "array", "ctypes", "gc", "glob", "importlib", "io", "json", "os"),
    *("select", "signal", "socket", "struct", "sys", "traceback", "types", "typing", "base64"),
    *("binascii", "collections", "csv", "inspect", "pickle", "re", "tempfile"),
}


@pytest.mark.parametrize("file", FILES, ids=[it.stem for it in FILES])
def test_it_is_python_3_7_of_the_standard_library_and_itself(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 7))
    for node in ast.walk(tree):
        names = [it.name for it in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        own = "hostelry.containers.predictive.worker"
        assert {it.split(".")[0] for it in names if not it.startswith(own)} <= STANDARD


def test_messages_arrive_whole_and_with_their_socket() -> None:
    here, there = socket.socketpair()
    with here, there:
        serving.send(here, {"a": 1}, b"body")
        serving.send(here, {"b": "ü"})
        assert serving.receive(there) == ({"a": 1}, b"body")
        assert serving.receive(there) == ({"b": "ü"}, b"")
        one, other = socket.socketpair()
        with one, other:
            socket.send_fds(here, [serving.pack_message({"number": 3})], [other.fileno()])
            head, (received,) = serving.receive_with_sockets(there)
            assert head == {"number": 3}
            with received:
                one.sendall(b"hello")
                assert received.recv(5) == b"hello"
        here.close()
        with pytest.raises(serving.ClosedError):
            serving.receive(there)


def array(*rows: list[float]) -> Any:
    return np.array(rows)


@pytest.mark.parametrize(
    ("parts", "predicted", "expected"),
    [
        pytest.param([array([1, 2]), array([3, 4], [5, 6])], np.array([1, 2, 3]),
                     [[1], [2, 3]], id="arrays"),
        pytest.param([["a"], ["b", "c"]], ["x", "y", "z"], [["x"], ["y", "z"]], id="lists"),
        pytest.param([["a"], []], ["x"], [["x"], []], id="one without rows"),
    ],
)  # fmt: skip
def test_inputs_are_joined_and_predictions_divided(
    parts: list[Any], predicted: Any, expected: list[Any]
) -> None:
    rows = [model_serving.count_rows(it) for it in parts]
    assert len(model_serving.join_inputs(parts)) == sum(rows)
    assert [list(it) for it in model_serving.split_prediction(predicted, rows)] == expected


@pytest.mark.parametrize(
    ("parts", "predicted"),
    [
        pytest.param([array([1, 2]), array([1, 2, 3])], None, id="other columns"),
        pytest.param([array([1, 2]), [[1, 2]]], None, id="other types"),
        pytest.param([array([1, 2]), array([1, 2]).astype("int8")], None, id="other numbers"),
        pytest.param([np.array(1.0)], None, id="no rows"),
        pytest.param([{"a": 1}], None, id="an object"),
        pytest.param([[1], [2]], [1], id="a prediction that lacks rows"),
        pytest.param([[1], [2]], np.array(1.0), id="one that is a number"),
        pytest.param([[1], [2]], "ab", id="one that is text"),
        pytest.param([[1], [2]], ([1, 2], "text/csv"), id="one with a content type"),
    ],
)
def test_what_cannot_be_one_batch(parts: list[Any], predicted: Any) -> None:
    def divided() -> list[Any]:
        rows = [model_serving.count_rows(it) for it in parts]
        model_serving.join_inputs(parts)
        return model_serving.split_prediction(predicted, rows)

    with pytest.raises(model_serving.NotBatchableError):
        divided()


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        pytest.param("ü", "ü".encode(), id="text"),
        pytest.param(bytearray(b"a"), b"a", id="bytes"),
    ],
)
def test_what_functions_may_answer(response: Any, expected: bytes) -> None:
    assert to_bytes(response) == expected


def test_what_they_may_not() -> None:
    with pytest.raises(TypeError, match="the answer is dict; output_fn and transform_fn must"):
        to_bytes({"a": 1})


@pytest.mark.parametrize(
    ("num_waiting", "oldest_at", "left_s"),
    [
        pytest.param(4, 10.0, 0.0, id="a full batch goes at once"),
        pytest.param(9, 10.0, 0.0, id="so does more than one"),
        pytest.param(1, 10.0, 0.5, id="one waits for others"),
        pytest.param(1, 9.5, 0.0, id="but not longer than the limit"),
        pytest.param(1, 1.0, 0.0, id="however long it was not looked at"),
    ],
)
def test_when_a_batch_goes(num_waiting: int, oldest_at: float, left_s: float) -> None:
    limits = BatchLimits(size=4, delay_s=0.5)
    assert wait_s(limits, num_waiting, oldest_at, 10.0) == left_s
