"""Bodies of default functions: recordio-protobuf, XGBoost's answers, the REST schema's requests."""

import json
import struct
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.cases import case, cases

from hostelry.containers.predictive.worker import (
    bodies,
    default_tensorflow,
    default_xgboost,
    defaults,
    recordio,
)
from hostelry.containers.predictive.worker.bodies import ByMediaType, decode_text, parse_accept
from hostelry.containers.predictive.worker.default_xgboost import (
    MODEL_PARAMETERS,
    NAME_LENGTH,
    Boosters,
    read_binary_settings,
)
from hostelry.containers.predictive.worker.model_serving import strip_folders
from hostelry.containers.predictive.worker.recordio import frame, pack_field, pack_varint


def test_an_error_keeps_the_systems_paths_and_loses_the_machines() -> None:
    text = "/home/me/model/code/x.py: /usr/bin/ffmpeg and /srv/python/lib/y are missing"
    folders = ["/home/me/model/code", "", "/srv/python/", "/usr", "/usr/local"]
    expected = "x.py: /usr/bin/ffmpeg and lib/y are missing"
    assert strip_folders(text, folders) == expected


F32, F64, I32 = 2, 3, 7


def record(values: bytes, kind: int = F32, name: bytes = b"values") -> bytes:
    """A framed record with one feature."""
    value = pack_field(kind, pack_field(1, values))
    return frame(pack_field(1, pack_field(1, name) + pack_field(2, value)))


@cases(
    "body, expected",
    case("32-bit floats", record(struct.pack("<3f", 1, 2, 3)), [[1, 2, 3]]),
    case("64-bit floats", record(struct.pack("<2d", 1, -2), F64), [[1, -2]]),
    case("integers", record(pack_varint(7) + pack_varint((1 << 64) - 1), I32), [[7, -1]]),
    case("two records", record(struct.pack("<f", 1)) * 2, [[1], [1]]),
)
def test_dense_records_are_an_array(body: bytes, expected: list[list[float]]) -> None:
    assert recordio.decode_features(body).tolist() == expected


@cases(
    "body, message",
    case("nothing", b"", "no record with features"),
    case("a piece of a frame", b"abc", "is cut"),
    case("another format", b"\0" * 8, "no magic number"),
    case("a length beyond the body", struct.pack("<II", recordio.MAGIC, 1 << 31),
        "beyond the body"),
    case("a field beyond the record", frame(b"\x0a\x7f"), "longer than the record"),
    case("an endless number", frame(b"\xff" * 12), "cut in a number"),
    case("a kind that protobuf has not", frame(b"\x0b"), "unknown kind"),
    case("another name", record(b"1234", name=b"others"), "no features with the name values"),
    case("bytes in place of a tensor", record(b"1234", 9), "no tensor"),
    case("a piece of a number", record(b"123"), "buffer size"),
)  # fmt: skip
def test_damaged_records_are_refused(body: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recordio.decode_features(body)


def test_answers_as_records_can_be_read() -> None:
    (first, second) = recordio.read_records(
        recordio.encode_labels([{"score": [0.5]}, {"score": [2.0]}])
    )
    (number, entry), = recordio.read_fields(first)  # fmt: skip
    pair = dict(recordio.read_fields(entry))
    assert (number, pair[1]) == (recordio.LABEL, b"score")
    assert recordio.read_tensor(pair[2])[0].tolist() == [0.5]
    assert second != first


@cases(
    "values, kind, expected",
    case("a line each", [0.25, 0.5], "text/csv", b"0.25\n0.5\n"),
    case("a line of classes", [[0.25, 0.5]], "text/csv", b"0.25,0.5\n"),
    case("json", [0.25], "application/json", b'{"predictions": [{"score": 0.25}]}'),
    case("json lines", [0.25], "application/jsonlines", b'{"score": 0.25}\n'),
)
def test_xgboosts_scores(values: Any, kind: str, expected: bytes) -> None:
    assert default_xgboost.encode_scores(default_xgboost.Scores(values, "", 0), kind) == expected


@cases(
    "read, body, message",
    case("text in csv", default_xgboost.from_csv, "1,2\n3,x",
        "line 2: field 2 is 'x', which is not a"),
    case("a line break in quotes", default_xgboost.from_csv, '1,"a\nb"\n',
        "line 1: field 2 is '\"a'"),
    case("a blank line in csv", default_xgboost.from_csv, "1,2\n\n3,4",
        "line 2 has 1, line 1 has 2"),
    case("text in libsvm", default_xgboost.from_libsvm, "1 0:1\n1 0:a",
        "line 2: field 2 is '0:a', which"),
    case("a negative index", default_xgboost.from_libsvm, "1 0:1\n1 -1:1",
        "line 2 has the index -1"),
    case("a damaged record", recordio.decode_features, record(b"1234") + frame(b"\x0a\x7f"),
        "record 2: "),
    case("half a JSON line", bodies.decode_json_lines, "[1]\n\n[2", "line 3: Expecting"),
    case("text in another framework's libsvm", bodies.decode_libsvm, "x\n0:1 1:b",
        "line 2: field 2 is '1:b'"),
    case("TensorFlow's lines", default_tensorflow.to_predict_body, '{"a": 1}\n{',
        "line 2: Expecting"),
)  # fmt: skip
def test_what_is_wrong_with_a_body_names_its_record(read: Any, body: Any, message: str) -> None:
    arguments = (
        (body, "application/json") if read is default_tensorflow.to_predict_body else (body,)
    )
    with pytest.raises((ValueError, default_tensorflow.RestError)) as caught:
        read(*arguments)
    assert message in str(caught.value)


@cases(
    "text, expected",
    case("a check with its reason",
        "[18:42:40] ../src/learner.cc:1483: Check failed: a >= b (4 vs. 6) : Number "
                 "of columns does not match number of features in booster.\nStack trace:\n x",
        "Number of columns does not match number of features in booster."),
    case("a check without one", "[18:42:40] src/x.cc:1: Check failed: a == b (1 vs. 2)",
        "a == b (1 vs. 2)"),
    case("no check", "need to call fit first", "need to call fit first"),
)  # fmt: skip
def test_xgboosts_errors_say_what_is_wrong_not_where_in_its_sources(
    text: str, expected: str
) -> None:
    assert default_xgboost.get_message(ValueError(text)) == expected


@cases(
    "variable, values, kind, expected",
    case("many models: a list", "MULTI_MODEL", [0.25, 0.5], "application/json", b"[0.25, 0.5]"),
    case("many models: a list of classes", "MULTI_MODEL", [[0.25, 0.5]], "application/json",
        b"[[0.25, 0.5]]"),
    case("many models: csv without lines", "MULTI_MODEL", [0.25, 0.5], "text/csv", b"0.25,0.5"),
    case("a batch: lines", "BATCH", [0.25, 0.5], "text/csv", b"0.25\n0.5\n"),
    case("a batch: lines whatever is accepted", "BATCH", [0.25, 0.5], "application/json",
        b"0.25\n0.5\n"),
)  # fmt: skip
def test_xgboosts_other_servers_scores(
    monkeypatch: pytest.MonkeyPatch, variable: str, values: Any, kind: str, expected: bytes
) -> None:
    monkeypatch.setenv(f"SAGEMAKER_{variable}", "true")
    assert default_xgboost.encode_scores(default_xgboost.Scores(values, "", 0), kind) == expected


def test_many_models_have_no_selected_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEMAKER_MULTI_MODEL", "true")
    monkeypatch.setenv("SAGEMAKER_INFERENCE_OUTPUT", "predicted_label")
    scores = default_xgboost.Scores(np.array([0.75]), "binary:logistic", 0)
    assert default_xgboost.encode_scores(scores, "application/json") == b"[0.75]"
    assert default_xgboost.XGBoostHandler().default_accept == "application/json"


@cases(
    "objective, num_class, value, expected",
    case("binary", "binary:logistic", 0, 0.75, (1, [0, 1], 0.75, [0.25, 0.75])),
    case("classes", "multi:softprob", 3, [0.5, 0.25, 0.25], (0, [0, 1, 2], 0.5, [0.5, 0.25, 0.25])),
)  # fmt: skip
def test_what_is_selected_of_xgboosts_answers(
    monkeypatch: pytest.MonkeyPatch, objective: str, num_class: int, value: Any, expected: Any
) -> None:
    keys = ("predicted_label", "labels", "probability", "probabilities")
    monkeypatch.setenv("SAGEMAKER_INFERENCE_OUTPUT", ", ".join((*keys, "predicted_score")))
    scores = default_xgboost.Scores(np.array([value]), objective, num_class)
    (found,) = json.loads(default_xgboost.encode_scores(scores, "application/json"))["predictions"]
    assert tuple(found[key] for key in keys) == expected
    assert found["predicted_score"] != found["predicted_score"], "not a number: no regression"


@cases(
    "text, kind, instances",
    case("a row", "[1, 2]", "application/json", [[1, 2]]),
    case("rows", "[[1], [2]]", "application/json", [[1], [2]]),
    case("an object", '{"x": 1}', "application/json", [{"x": 1}]),
    case("lines", '{"x": 1}\n{"x": 2}', "application/jsonlines", [{"x": 1}, {"x": 2}]),
    case("csv", "1,2\n3,4\n", "text/csv", [[1, 2], [3, 4]]),
    case("csv of text", 'a,"b"\n', "text/csv", [["a", "b"]]),
    case("csv of one column", "5\n6\n", "text/csv", [5, 6]),
)  # fmt: skip
def test_other_bodies_become_rows_of_the_rest_schema(text: str, kind: str, instances: Any) -> None:
    assert json.loads(default_tensorflow.to_predict_body(text, kind)) == {"instances": instances}


SPECS = {"a": None, "b": None}


@cases(
    "instances, message",
    case("no rows", [], "at least one row"),
    case("no list", 3, "at least one row"),
    case("one input less", [{"a": 1}], "each row of 'instances' must be an object"),
    case("a value for two inputs", [1], "each row"),
)
def test_rows_that_no_signature_takes(instances: Any, message: str) -> None:
    with pytest.raises(default_tensorflow.RestError, match=message):
        default_tensorflow.read_instances(instances, SPECS)


def test_rows_become_columns() -> None:
    rows = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert default_tensorflow.read_instances(rows, SPECS) == {"a": [1, 3], "b": [2, 4]}
    assert default_tensorflow.read_instances([1, 2], {"a": None}) == {"a": [1, 2]}
    assert default_tensorflow.read_instances([{"a": 1}], {"a": None}) == {"a": [1]}


class OldBooster:
    """The part of a booster's interface that XGBoost before 1.4 has."""

    def save_config(self) -> str:
        """Its settings."""
        learner = {
            "learner_model_param": {"num_class": "0", "num_feature": "4"},
            "objective": {"name": "binary:logistic"},
        }
        return json.dumps({"learner": learner})


def test_xgboosts_settings_are_read_without_methods_of_later_versions() -> None:
    found = Boosters([OldBooster()])
    assert (found.objective, found.num_class, found.num_features) == ("binary:logistic", 0, 4)


class OldestBooster:
    """The part of a booster's interface that XGBoost before 1.0 has: its binary format."""

    def __init__(self, start: bytes = b"") -> None:
        name = b"multi:softprob"
        self.raw = start + MODEL_PARAMETERS.pack(0.5, 4, 3) + NAME_LENGTH.pack(len(name)) + name

    def save_raw(self) -> bytearray:
        """Its binary form, with the trees."""
        return bytearray(self.raw + NAME_LENGTH.pack(6) + b"gbtree" + bytes(100))


@pytest.mark.parametrize("start", [b"", b"binf"], ids=["of a pickle", "of a file"])
def test_the_oldest_xgboosts_settings_are_in_the_binary_form(start: bytes) -> None:
    found = Boosters([OldestBooster(start)])
    assert (found.objective, found.num_class, found.num_features) == ("multi:softprob", 3, 4)


@pytest.mark.parametrize("length", [0, 4, 100, 143])
def test_a_binary_form_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"has {length} bytes only"):
        read_binary_settings(OldestBooster().raw[:length])


@cases(
    "body, content_type, expected",
    case("UTF-8 unless said", "ä".encode(), "text/csv", "ä"),
    case("another charset", b"\xe4", "text/csv; charset=ISO-8859-1", "ä"),
    case("in quotes", "ä".encode(), 'text/csv;charset="utf-8"; header=x', "ä"),
    case("a byte order mark", b"\xef\xbb\xbf[1]", "application/json", "[1]"),
)
def test_a_body_is_text_in_its_charset(body: bytes, content_type: str, expected: str) -> None:
    assert decode_text(body, content_type) == expected


def test_tables_of_content_types_know_parameters_and_any_case() -> None:
    table = ByMediaType({"text/csv": 1, "application/json": 2})
    given = ("text/csv", "text/csv; charset=utf-8", "Application/JSON")
    assert [table[it] for it in given] == [1, 1, 2]
    with pytest.raises(KeyError):
        table["text/plain; charset=utf-8"]
    accept = "text/plain; charset=utf-8, Text/CSV ,*/*"
    assert parse_accept(accept) == ["text/plain", "text/csv", "application/json"]


class Joblib:
    """A joblib that reads the files whose names it is given."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def load(self, path: str) -> str:
        if path not in self._names:
            raise KeyError(1)
        return f"{path} by {self._names}"


@cases(
    "path, is_vendored, expected",
    case("a file of joblib", "new", True, "new by ('new',)"),
    case("a file of the one in scikit-learn 0.20", "old", True, "old by ('old',)"),
    case("a file of neither", "other", True, None),
    case("a later scikit-learn, which has no joblib in itself", "old", False, None),
)
def test_files_of_both_joblibs_are_read(
    monkeypatch: pytest.MonkeyPatch, path: str, is_vendored: bool, expected: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "joblib", Joblib("new"))
    monkeypatch.setitem(
        sys.modules, "sklearn.externals.joblib", Joblib("old") if is_vendored else None
    )
    for name in ("sklearn", "sklearn.externals"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    if expected is None:
        with pytest.raises(KeyError):
            defaults.unpickle(path)
    else:
        assert defaults.unpickle(path) == expected
