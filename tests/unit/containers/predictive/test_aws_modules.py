"""Modules of AWS's images: their contents, their refusals, and modules that take precedence."""

import importlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import case, cases

from hostelry.containers.predictive.worker import aws_functions, aws_modules, recordio
from hostelry.containers.predictive.worker.aws_functions import ScriptResponse
from hostelry.containers.predictive.worker.model_serving import convert_flask_response


@pytest.fixture(autouse=True)
def found() -> Iterator[None]:
    aws_modules.install()
    yield
    sys.meta_path[:] = [it for it in sys.meta_path if not isinstance(it, aws_modules.AwsModules)]
    for name in aws_modules.NAMES & set(sys.modules):
        del sys.modules[name]


@pytest.mark.parametrize("name", sorted(aws_modules.ELSEWHERE))
def test_what_trains_is_imported_and_refuses_when_it_is_called(name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"^{name}\.run is for training, or a part of AWS's"):
        importlib.import_module(name).run("x", wait=True)


def test_a_name_that_awss_packages_have_not_is_no_module() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"sagemaker_containers\.other"):
        importlib.import_module("sagemaker_containers.other")


def test_a_package_that_is_there_comes_first_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sagemaker_containers").mkdir()
    (tmp_path / "sagemaker_containers" / "__init__.py").write_text("own = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.import_module("sagemaker_containers").own is True
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("sagemaker_containers.entry_point")


HUGGING_FACE = "sagemaker_huggingface_inference_toolkit"


@cases(
    "module, name, arguments, expected",
    case("Hugging Face's JSON in", f"{HUGGING_FACE}.decoder_encoder", "decode", ['{"inputs": "a"}'],
        {"inputs": "a"}),
    case("its csv in", f"{HUGGING_FACE}.decoder_encoder", "decode", ["inputs\na\nb\n", "text/csv"],
        {"inputs": ["a", "b"]}),
    case("its JSON out", f"{HUGGING_FACE}.decoder_encoder", "encode",
        [{"a": np.float32(0.5)}, "application/json"], '{"a":0.5}'),
    case("its csv out", f"{HUGGING_FACE}.decoder_encoder", "encode", [[{"a": 1}], "text/csv"],
        "a\r\n1\r\n"),
    case("XGBoost's JSON lines", "sagemaker_xgboost_container.encoder", "json_to_jsonlines",
        [{"predictions": [{"score": 1}, 2]}], b'{"score": 1}\n2\n'),
)  # fmt: skip
def test_functions_of_awss_modules(
    module: str, name: str, arguments: list[Any], expected: Any
) -> None:
    assert getattr(importlib.import_module(module), name)(*arguments) == expected


@cases(
    "module, names",
    case("Hugging Face's", f"{HUGGING_FACE}.content_types",
        {"JPEG": "image/jpeg", "X_IMAGE": "image/x-image", "WAV": "audio/wave",
                  "X_AUDIO": "audio/x-audio", "UTF8_TYPES": ["application/json", "text/csv"]}),
    case("XGBoost's", "sagemaker_xgboost_container.constants.xgb_content_types",
        {"LIBSVM": "text/libsvm", "X_PARQUET": "application/x-parquet"}),
    case("those of the others", "sagemaker_containers._content_types",
        {"NPY": "application/x-npy"}),
)  # fmt: skip
def test_content_types_have_awss_names(module: str, names: dict[str, Any]) -> None:
    there = vars(importlib.import_module(module))
    assert {name: there[name] for name in names} == names


@cases(
    "text, dtype, expected",
    case("numbers", "1,2\n3,4\n", None, [[1, 2], [3, 4]]),
    case("one row has one dimension", "1,2\n", None, [1, 2]),
    case("so has one column", b"1\n2\n", None, [1, 2]),
    case("text, with quotes", 'a,"b,c"\n', None, ["a", "b,c"]),
    case("a type", "1,2", "int32", [1, 2]),
)
def test_csv_is_read_as_by_awss_encoders(text: Any, dtype: Any, expected: list[Any]) -> None:
    assert aws_functions.csv_to_numpy(text, dtype).tolist() == expected


@cases(
    "text, dtype, message",
    case("text in place of numbers", "a,b", float, "a value that is not"),
    case("half a quote", '"a', None, "cannot be read"),
    case(
        "a long cell, for which each has room",
        "x" * 99_999 + "\n1" * 9999,
        None,
        "an array of 3999960000 bytes",
    ),
)
def test_csv_that_is_refused(text: str, dtype: Any, message: str) -> None:
    with pytest.raises(aws_functions.ClientError, match=message):
        aws_functions.csv_to_numpy(text, dtype)


@cases(
    "values, expected",
    case("rows", [[1.0, 2.0], [3.0, 4.0]], "1.0,2.0\n3.0,4.0\n"),
    case("one dimension", np.array([1, 2]), "1\n2\n"),
    case("text with a comma", [["a,b", "c"]], '"a,b",c\n'),
    case("one value", 5, "5\n"),
)
def test_csv_is_written_as_by_awss_encoders(values: Any, expected: str) -> None:
    assert aws_functions.array_to_csv(values) == expected


@cases(
    "response, expected",
    case("text", ScriptResponse("ü", mimetype="text/csv"),
        (200, "ü".encode(), "text/csv; charset=utf-8", {})),
    case("pieces, and a status with words", ScriptResponse([b"a", "b"], status="404 NOT FOUND"),
        (404, b"ab", "application/json", {})),
    case("headers", ScriptResponse(b"", headers=[("X-A", "b")], mimetype="image/png"),
        (200, b"", "image/png", {"X-A": "b"})),
)  # fmt: skip
def test_their_responses_are_answers(response: Any, expected: tuple[Any, ...]) -> None:
    reply = convert_flask_response(response)
    assert (reply.status, reply.body, reply.content_type, reply.headers) == expected


class Sparse:
    """A sparse matrix with the rows of a dense one."""

    def __init__(self, rows: Any) -> None:
        self.rows, self.shape = rows, rows.shape

    def __getitem__(self, at: int) -> "Sparse":
        return Sparse(self.rows[at : at + 1])

    def tocsr(self) -> "Sparse":
        self.indices = np.flatnonzero(self.rows[0])
        self.data = self.rows[0][self.indices]
        return self


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_rows_are_written_as_records_that_can_be_read(dtype: str) -> None:
    rows = np.array([[1, 0, -3], [4, 5, 0]], dtype)
    body = recordio.encode_features(rows, np.array([7, 8], "float32"))
    assert recordio.decode_features(body).tolist() == rows.tolist()
    assert struct.pack("<f", 8) in body
    sparse = recordio.encode_features(Sparse(rows))
    read = [recordio.read_features(record) for record in recordio.read_records(sparse)]
    assert [it[0].tolist() for it in read] == [[1, -3], [4, 5]]
    assert [list(it[1]) for it in read] == [[0, 2], [0, 1]]
    assert [it[2] for it in read] == [3, 3]


def test_other_values_are_no_record() -> None:
    with pytest.raises(TypeError, match="the values are <U1; a record has float32"):
        recordio.encode_features(np.array([["a"]]))
