"""Models of a repository: which one requests are for, and why Triton could not load one."""

from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.containers.triton.model_folder import (
    ModelFolder,
    check_folder,
    choose_model,
    find_needed,
    find_repository,
    may_have_end,
    read_model,
)
from hostelry.containers.triton.text_format import parse_message

VERSION = {"1": frozenset({"model.py"})}
PYTHON = 'backend: "python"'


def folder(name: str, config: str | None = PYTHON, **given: object) -> ModelFolder:
    parsed = None if config is None else parse_message(config)
    return ModelFolder(name=name, config=parsed, **{"versions": VERSION, **given})  # type: ignore[arg-type]


def ensemble(name: str, *steps: str) -> ModelFolder:
    called = "".join(f'step {{ model_name: "{it}" }}' for it in steps)
    return folder(name, f'platform: "ensemble" ensemble_scheduling {{ {called} }}')


A, B, BOTH = folder("a"), folder("b"), ensemble("both", "a", "b")


@cases(
    "folders, given, multi_model, found",
    case("the only one", [A], "", False, "a"),
    case("the one that is named", [A, B], "b", False, "b"),
    case("an ensemble that is named", [A, B, BOTH], "both", False, "both"),
    case("of many: the only one", [A], "", True, "a"),
    case("of many: the ensemble", [A, B, BOTH], "", True, "both"),
    case("of many: the name is not read", [A], "b", True, "a"),
)
def test_the_model_that_requests_are_for(
    folders: list[ModelFolder], given: str, multi_model: bool, found: str
) -> None:
    assert choose_model(folders, given, multi_model).name == found


@cases(
    "folders, given, multi_model, reason",
    case("none", [], "", False, "the archive has no model"),
    case("several without a name", [A, B], "", False, r"several models \(a, b\)"),
    case("which names the ensemble", [A, B, BOTH], "", False, "for example both"),
    case("another name", [A, B], "c", False, "is 'c'; the archive has a, b"),
    case("of many: several without ensemble", [A, B], "", True, "0 are ensembles"),
    case("of many: several ensembles", [BOTH, ensemble("also", "a")], "", True, "2 are ensembles"),
)  # fmt: skip
def test_no_model_to_be_chosen(
    folders: list[ModelFolder], given: str, multi_model: bool, reason: str
) -> None:
    with pytest.raises(TerminalError, match=reason):
        choose_model(folders, given, multi_model)


def test_an_ensemble_needs_its_steps_also_through_others() -> None:
    outer = ensemble("outer", "both", "a")
    assert [it.name for it in find_needed(outer, [A, B, BOTH, outer])] == [
        "outer",
        "both",
        "a",
        "b",
    ]
    circle = ensemble("x", "x")
    assert [it.name for it in find_needed(circle, [circle])] == ["x"]
    with pytest.raises(TerminalError, match=r"both/config.pbtxt has a step of the model 'b'"):
        find_needed(BOTH, [A, BOTH])


@cases(
    "given, reason",
    case("Python", A, None),
    case("an ensemble needs no backend", BOTH, None),
    case("no configuration, but model.py", folder("a", None), None),
    case("a backend in the archive",
        folder("a", 'backend: "own"', files=frozenset({"libtriton_own.so"})), None),
    case("its own name", folder("a", 'name: "a" ' + PYTHON), None),
    case("a backend that is not there, by its platform",
        folder("a", 'platform: "onnxruntime_onnx"'),
        "a/config.pbtxt needs the backend 'onnxruntime'; /srv/t has python"),
    case("by its file", folder("a", None, versions={"1": frozenset({"model.plan"})}),
        "needs the backend 'tensorrt'"),
    case("nothing that says", folder("a", None, versions={"1": frozenset({"weights"})}),
        "a has no config.pbtxt, nor one of model.onnx"),
    case("a configuration without", folder("a", "max_batch_size: 1", versions={}),
        "names no backend"),
    case("no version", folder("a", versions={}), "a has no version folder: a/1 is needed, of its"),
    case("an ensemble without version", folder("e", 'platform: "ensemble"', versions={}),
        "an empty one is enough"),
    case("another name", folder("a", 'name: "b" ' + PYTHON),
        "has the name 'b'; it must be the folder"),
    case("a torn configuration", folder("a", None, config_fault="line 2: x"),
        "a/config.pbtxt cannot be read: line 2: x"),
)  # fmt: skip
def test_folders_that_triton_loads(given: ModelFolder, reason: str | None) -> None:
    if reason is None:
        check_folder(given, {"python"}, "/srv/t")
        return
    with pytest.raises(TerminalError, match=reason):
        check_folder(given, {"python"}, "/srv/t")


@cases(
    "config, is_stateless",
    case("as a rule", PYTHON, True),
    case("sequences", PYTHON + " sequence_batching { }", False),
    case("several answers", PYTHON + " model_transaction_policy { decoupled: true }", False),
    case("which it says it has not", PYTHON + " model_transaction_policy { decoupled: false }",
        True),
)  # fmt: skip
def test_models_that_requests_leave_as_they_are(config: str, is_stateless: bool) -> None:
    assert folder("a", config).is_stateless is is_stateless


@cases(
    "texts, may_have_one",
    case("none", ["class TritonPythonModel:\n  pass"], False),
    case("of no other class", ["x = 1\nclass TritonPythonModel(object) :\n"], False),
    case("its own", ["class TritonPythonModel:\n  def finalize(self): ..."], True),
    case("perhaps inherited", ["class TritonPythonModel(Base):\n  pass"], True),
    case("perhaps in another file", ["class TritonPythonModel:\n", "def finalize(it): ..."], True),
    case("no Python to be read", [], True),
)  # fmt: skip
def test_models_that_may_have_something_to_do_at_their_end(
    texts: list[str], may_have_one: bool
) -> None:
    assert may_have_end(texts) is may_have_one


def test_a_repository_is_read_from_its_files(tmp_path: Path) -> None:
    own = tmp_path / "model" / "a"
    for name in ("1", "3", "0", "\u00b2", "notes"):
        (own / name).mkdir(parents=True)
    (tmp_path / "model" / ".hidden").mkdir()
    (own / "3" / "model.py").touch()
    (own / "config.pbtxt").write_text("backend: $")
    repository, (found,) = find_repository(tmp_path / "model", tmp_path, multi_model=False)
    assert repository == tmp_path / "model"
    assert found.config is None
    assert "line 1: '$'" in found.config_fault
    assert found.versions == {"1": frozenset(), "3": frozenset({"model.py"})}
    (own / "config.pbtxt").write_bytes(b"#" * (1 << 21))
    assert "more than 262144 bytes" in read_model(own, "a").config_fault


def test_a_model_without_a_folder_is_one_of_many_only(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    (archive / "1").mkdir(parents=True)
    (archive / "config.pbtxt").write_text(f'name: "times" {PYTHON}')
    with pytest.raises(TerminalError, match=r"config.pbtxt is at the archive's top"):
        find_repository(archive, tmp_path, multi_model=False)
    repository, (found,) = find_repository(archive, tmp_path, multi_model=True)
    assert (found.name, (repository / "times" / "1").is_dir()) == ("times", True)
    (archive / "config.pbtxt").write_text(f'name: "../times" {PYTHON}')
    _, folders = find_repository(archive, tmp_path, multi_model=True)
    assert "model" in [it.name for it in folders]
