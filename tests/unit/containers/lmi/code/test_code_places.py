"""Environment and places of an author's process; requirements that may be installed."""

from pathlib import Path

import pytest

from hostelry.containers.code.code_process import code_environment, readable_places
from hostelry.containers.lmi.code.author_code import RequirementsError, parse_requirements

SERVER = {
    "HOSTELRY_COPY_KEY": "k", "OPTION_HF_TOKEN": "t",
    "HOSTELRY_MODEL_DIR": "/m", "HF_TOKEN": "t", "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "s", "OPTION_DTYPE": "fp32", "SAGEMAKER_REGION": "r", "LANG": "C",
    "OMP_NUM_THREADS": "2", "HTTPS_PROXY": "http://u:p@proxy", "HOME": "/root",
}  # fmt: skip


@pytest.mark.parametrize(
    ("is_adapter", "is_confined", "seen"),
    [
        pytest.param(
            False, True, {"OPTION_DTYPE", "SAGEMAKER_REGION", "LANG", "OMP_NUM_THREADS", "HOME"},
            id="the model's code sees its settings",
        ),
        pytest.param(True, True, {"LANG", "OMP_NUM_THREADS", "HOME"}, id="an adapter's none"),
        pytest.param(True, False, {"LANG", "OMP_NUM_THREADS"}, id="nor one that is trusted"),
        pytest.param(
            False, False,
            {"OPTION_DTYPE", "SAGEMAKER_REGION", "LANG", "OMP_NUM_THREADS", "HOME",
             "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"},
            id="the model's that is trusted has its Environment's keys",
        ),
    ],
)  # fmt: skip
def test_the_variables_of_the_code(is_adapter: bool, is_confined: bool, seen: set[str]) -> None:
    found = code_environment(SERVER, is_adapter=is_adapter, is_confined=is_confined, scratch=None)
    assert found.keys() & SERVER.keys() == seen
    assert found.get("HOME") != "/root" or not is_confined


def test_the_code_reads_its_folder_and_the_tokenizer(tmp_path: Path) -> None:
    found = readable_places(Path("/model/adapters/a"), tmp_path)
    assert "/model/adapters/a" in found
    assert str(tmp_path / "tokenizer.json") in found
    assert str(tmp_path) not in found
    assert "/" not in found
    assert "/proc" not in found


def test_requirements_that_are_accepted() -> None:
    text = "# packages\nnumpy\nboto3==1.2.3  # pinned\nx[a,b] >= 1, < 2 ; python_version > '3'\n\n"
    assert parse_requirements(text) == (
        "numpy", "boto3==1.2.3", "x[a,b] >= 1, < 2 ; python_version > '3'",
    )  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "--index-url http://x", "-r other.txt", "-e .", "./wheel.whl", "/root/x.whl", "x @ file:///x",
        "git+https://x/y", "--no-binary=:all:", "x --hash=sha256:0", "http://x/y.whl",
    ],
)  # fmt: skip
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(RequirementsError, match="no URL, path or option"):
        parse_requirements(f"numpy\n{line}")
