import json
import sys
from pathlib import Path

import pytest
from tests.cases import case, cases
from typer.testing import CliRunner

from hostelry.base.errors import TerminalError
from hostelry.cli.kernel import is_ours, kernel_folder, kernel_specification, python_with
from hostelry.cli.main import app


def test_a_kernel_runs_its_python_under_exec() -> None:
    made = kernel_specification("/venv/bin/python", Path("/h"), "mine")
    assert made["argv"] == [
        *[sys.executable, "-P", "-m", "hostelry.cli.main", "exec", "--home", "/h", "--"],
        *["/venv/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    ]
    assert made["interrupt_mode"] == "message"


@cases(
    "prefix, environment, folder",
    case("Jupyter's own variable", None, {"JUPYTER_DATA_DIR": "/j"}, "/j/kernels/k"),
    case("--prefix", Path("/venv"), {"JUPYTER_DATA_DIR": "/j"}, "/venv/share/jupyter/kernels/k"),
)
def test_folders(prefix: Path | None, environment: dict[str, str], folder: str) -> None:
    assert kernel_folder("k", prefix, environment) == Path(folder)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A", ".hidden", "a" * 101])
def test_a_name_that_is_no_kernels_is_refused(name: str) -> None:
    with pytest.raises(TerminalError, match="--name"):
        kernel_folder(name, None, {"JUPYTER_DATA_DIR": "/j"})


def test_another_programs_kernel_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "jupyter" / "kernels" / "theirs"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps({"argv": ["python"]}))
    assert not is_ours(folder)
    arguments = ["kernel", "remove", "--name", "theirs", "--prefix", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, TerminalError)
    assert (folder / "kernel.json").exists()


def test_a_python_without_a_module_names_what_to_install() -> None:
    assert python_with(sys.executable, "json") == sys.executable
    with pytest.raises(TerminalError, match=r"lacks 'no_such_module'.*pip install no_such_module"):
        python_with(sys.executable, "no_such_module")
    with pytest.raises(TerminalError, match="command not found"):
        python_with("no-such-python")
