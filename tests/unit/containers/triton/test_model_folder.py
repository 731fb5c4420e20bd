"""Models of a repository: which one requests are for, and why Triton could not load one."""

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("folders", "given", "multi_model", "found"),
    [
        pytest.param([A], "", False, "a", id="the only one"),
        pytest.param([A, B], "b", False, "b", id="the one that is named"),
        pytest.param([A, B, BOTH], "both", False, "both", id="an ensemble that is named"),
        pytest.param([A], "", True, "a", id="of many: the only one"),
        pytest.param([A, B, BOTH], "", True, "both", id="of many: the ensemble"),
        pytest.param([A], "b", True, "a", id="of many: the name is not read"),
    ],
)
def test_the_model_that_requests_are_for(
    folders: list[ModelFolder], given: str, multi_model: bool, found: str
) -> None:
    assert choose_model(folders, given, multi_model).name == found


@pytest.mark.parametrize(
    ("folders", "given", "multi_model", "reason"),
    [
        pytest.param([], "", False, "the archive has no model", id="none"),
        pytest.param([A, B], "", False, r"several models \(a, b\)", id="several without a name"),
        pytest.param([A, B, BOTH], "", False, "for example both", id="which names the ensemble"),
        pytest.param([A, B], "c", False, "is 'c'; the archive has a, b", id="another name"),
        pytest.param([A, B], "", True, "0 are ensembles", id="of many: several without ensemble"),
        pytest.param([BOTH, ensemble("also", "a")], "", True, "2 are ensembles",
                     id="of many: several ensembles"),
    ],
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


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param(A, None, id="Python"),
        pytest.param(BOTH, None, id="an ensemble needs no backend"),
        pytest.param(folder("a", None), None, id="no configuration, but model.py"),
        pytest.param(folder("a", 'backend: "own"', files=frozenset({"libtriton_own.so"})), None,
                     id="a backend in the archive"),
        pytest.param(folder("a", 'name: "a" ' + PYTHON), None, id="its own name"),
        pytest.param(folder("a", 'platform: "onnxruntime_onnx"'),
                     "a/config.pbtxt needs the backend 'onnxruntime'; /srv/t has python",
                     id="a backend that is not there, by its platform"),
        pytest.param(folder("a", None, versions={"1": frozenset({"model.plan"})}),
                     "needs the backend 'tensorrt'", id="by its file"),
        pytest.param(folder("a", None, versions={"1": frozenset({"weights"})}),
                     "a has no config.pbtxt, nor one of model.onnx", id="nothing that says"),
        pytest.param(folder("a", "max_batch_size: 1", versions={}), "names no backend",
                     id="a configuration without"),
        pytest.param(folder("a", versions={}), "a has no version folder: a/1 is needed, of its",
                     id="no version"),
        pytest.param(folder("e", 'platform: "ensemble"', versions={}), "an empty one is enough",
                     id="an ensemble without version"),
        pytest.param(folder("a", 'name: "b" ' + PYTHON), "has the name 'b'; it must be the folder",
                     id="another name"),
        pytest.param(folder("a", None, config_fault="line 2: x"),
                     "a/config.pbtxt cannot be read: line 2: x", id="a torn configuration"),
    ],
)  # fmt: skip
def test_folders_that_triton_loads(given: ModelFolder, reason: str | None) -> None:
    if reason is None:
        check_folder(given, {"python"}, "/srv/t")
        return
    with pytest.raises(TerminalError, match=reason):
        check_folder(given, {"python"}, "/srv/t")


@pytest.mark.parametrize(
    ("config", "is_stateless"),
    [
        pytest.param(PYTHON, True, id="as a rule"),
        pytest.param(PYTHON + " sequence_batching { }", False, id="sequences"),
        pytest.param(PYTHON + " model_transaction_policy { decoupled: true }", False,
                     id="several answers"),
        pytest.param(PYTHON + " model_transaction_policy { decoupled: false }", True,
                     id="which it says it has not"),
    ],
)  # fmt: skip
def test_models_that_requests_leave_as_they_are(config: str, is_stateless: bool) -> None:
    assert folder("a", config).is_stateless is is_stateless


@pytest.mark.parametrize(
    ("texts", "may_have_one"),
    [
        pytest.param(["class TritonPythonModel:\n  pass"], False, id="none"),
        pytest.param(["x = 1\nclass TritonPythonModel(object) :\n"], False, id="of no other class"),
        pytest.param(["class TritonPythonModel:\n  def finalize(self): ..."], True, id="its own"),
        pytest.param(["class TritonPythonModel(Base):\n  pass"], True, id="perhaps inherited"),
        pytest.param(["class TritonPythonModel:\n", "def finalize(it): ..."], True,
                     id="perhaps in another file"),
        pytest.param([], True, id="no Python to be read"),
    ],
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
