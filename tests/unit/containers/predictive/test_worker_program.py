"""The program in a runtime's interpreter: its Python, its messages, and batches by rows."""

import ast
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import case, cases

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


@cases(
    "parts, predicted, expected",
    case("arrays", [array([1, 2]), array([3, 4], [5, 6])], np.array([1, 2, 3]), [[1], [2, 3]]),
    case("lists", [["a"], ["b", "c"]], ["x", "y", "z"], [["x"], ["y", "z"]]),
    case("one without rows", [["a"], []], ["x"], [["x"], []]),
)  # fmt: skip
def test_inputs_are_joined_and_predictions_divided(
    parts: list[Any], predicted: Any, expected: list[Any]
) -> None:
    rows = [model_serving.count_rows(it) for it in parts]
    assert len(model_serving.join_inputs(parts)) == sum(rows)
    assert [list(it) for it in model_serving.split_prediction(predicted, rows)] == expected


@cases(
    "parts, predicted",
    case("other columns", [array([1, 2]), array([1, 2, 3])], None),
    case("other types", [array([1, 2]), [[1, 2]]], None),
    case("other numbers", [array([1, 2]), array([1, 2]).astype("int8")], None),
    case("no rows", [np.array(1.0)], None),
    case("an object", [{"a": 1}], None),
    case("a prediction that lacks rows", [[1], [2]], [1]),
    case("one that is a number", [[1], [2]], np.array(1.0)),
    case("one that is text", [[1], [2]], "ab"),
    case("one with a content type", [[1], [2]], ([1, 2], "text/csv")),
)
def test_what_cannot_be_one_batch(parts: list[Any], predicted: Any) -> None:
    def divided() -> list[Any]:
        rows = [model_serving.count_rows(it) for it in parts]
        model_serving.join_inputs(parts)
        return model_serving.split_prediction(predicted, rows)

    with pytest.raises(model_serving.NotBatchableError):
        divided()


@cases("response, expected", case("text", "ü", "ü".encode()), case("bytes", bytearray(b"a"), b"a"))
def test_what_functions_may_answer(response: Any, expected: bytes) -> None:
    assert to_bytes(response) == expected


def test_what_they_may_not() -> None:
    with pytest.raises(TypeError, match="the answer is dict; output_fn and transform_fn must"):
        to_bytes({"a": 1})


@cases(
    "num_waiting, oldest_at, left_s",
    case("a full batch goes at once", 4, 10.0, 0.0),
    case("so does more than one", 9, 10.0, 0.0),
    case("one waits for others", 1, 10.0, 0.5),
    case("but not longer than the limit", 1, 9.5, 0.0),
    case("however long it was not looked at", 1, 1.0, 0.0),
)
def test_when_a_batch_goes(num_waiting: int, oldest_at: float, left_s: float) -> None:
    limits = BatchLimits(size=4, delay_s=0.5)
    assert wait_s(limits, num_waiting, oldest_at, 10.0) == left_s
