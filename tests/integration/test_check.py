import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.integration.platform import CLI, Platform
from tests.integration.virtual_environments import virtual_environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]  # the first run installs Jupyter

CELLS = (
    "%%time\nimport boto3\nsm = boto3.client('sagemaker')\nsm.list_endpoints()",
    "!echo from a shell",
    "try:\n    sm.list_training_jobs()\nexcept sm.exceptions.ClientError:\n    pass",
    "sm.describe_endpoint(EndpointName='none')",
    "sm.list_models()",
)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("check") / "home") as running:
        yield running


def notebook(path: Path, cells: tuple[str, ...]) -> Path:
    made: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "metadata": {},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for source in cells
    ]
    whole = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": made}
    path.write_text(json.dumps(whole))
    return path


def jupyter() -> str:
    return str(virtual_environment("notebook", "nbclient", "ipykernel", "boto3") / "python")


def hostelry(
    platform: Platform, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *arguments],
        env={**platform.environment, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@cases(
    "flags, expected",
    case("it stops after a cell that failed", [], [True, True, False, False]),
    case("or goes on", ["--keep-going"], [True, True, False, False, True]),
)
def test_a_notebook_is_judged_cell_by_cell(
    platform: Platform, tmp_path: Path, flags: list[str], expected: list[bool]
) -> None:
    path = notebook(tmp_path / "it.ipynb", CELLS)
    where = ["--home", str(platform.home.root), "--python", jupyter()]
    done = hostelry(platform, "check", *where, "--json", *flags, str(path))
    assert done.returncode == 1, done.stderr
    assert "is real" in done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert [cell["ok"] for cell in cells] == expected, done.stdout
    assert [cell["first_line"] for cell in cells[:2]] == ["%%time", "!echo from a shell"]
    assert cells[0]["calls"][0]["operation"] == "ListEndpoints"
    assert cells[1]["calls"] == []
    assert (cells[2]["error"], cells[2]["unserved"][0]["operation"]) == ("", "ListTrainingJobs")
    assert "Could not find endpoint" in cells[3]["error"]


def test_a_command_of_a_notebook_is_the_one_beside_its_python(
    platform: Platform, tmp_path: Path
) -> None:
    source = "import sys\nfound = !python -c 'import sys; print(sys.executable)'\n"
    path = notebook(tmp_path / "it.ipynb", (f"{source}assert found == [sys.executable], found",))
    where = ["--home", str(platform.home.root), "--python", jupyter()]
    done = hostelry(platform, "check", *where, str(path))
    assert done.returncode == 0, done.stdout


def test_a_program_is_one_cell(platform: Platform, tmp_path: Path) -> None:
    program = tmp_path / "it.py"
    program.write_text("import boto3, sys\nboto3.client('sts').get_caller_identity()\nsys.exit(0)")
    where = ["--home", str(platform.home.root), "--python", jupyter()]
    done = hostelry(platform, "check", *where, str(program))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[1] ok          it.py",
        "      sts:GetCallerIdentity  1  ok",
        "1 cell ran, and all calls are served",
    ]


def test_a_kernel_needs_no_jupyter_under_exec(platform: Platform, tmp_path: Path) -> None:
    own = {"JUPYTER_DATA_DIR": str(tmp_path / "data"), "HOME": str(tmp_path)}
    where = ["--home", str(platform.home.root), "--python", jupyter()]
    done = hostelry(platform, "kernel", "install", *where, **own)
    assert done.returncode == 0, done.stderr
    source = (
        "import boto3\n"
        "sts = boto3.client('sts', endpoint_url='https://sts.us-east-1.amazonaws.com')\n"
        "assert sts.get_caller_identity()['Account'] == "
        f"{platform.credentials.account_id!r}"
    )
    path = notebook(tmp_path / "it.ipynb", (source,))
    program = (
        "import nbformat, nbclient, sys\n"
        "nbclient.NotebookClient(nbformat.read(sys.argv[1], 4), kernel_name='hostelry').execute()"
    )
    environment = {"PATH": os.environ["PATH"], **own}
    subprocess.run([jupyter(), "-c", program, str(path)], env=environment, check=True, timeout=120)
    removed = hostelry(platform, "kernel", "remove", **own)
    assert removed.returncode == 0, removed.stderr
    assert list((tmp_path / "data" / "kernels").iterdir()) == []
