from pathlib import Path

import pytest

from hostelry.containers.lmi.artifact_path import path_inside


@pytest.mark.parametrize(
    ("text", "means"),
    [
        pytest.param("a/t.jinja", "a/t.jinja", id="a file of the folder"),
        pytest.param("none", "none", id="one that is not there"),
        pytest.param("/opt/ml/model/a", "a", id="as a container has it"),
        pytest.param("/opt/ml/model", ".", id="the folder itself"),
        pytest.param("inner", "inner", id="a link within"),
        pytest.param("/etc/passwd", None, id="a file of the machine"),
        pytest.param("../secret", None, id="a file beside the folder"),
        pytest.param("a/../../secret", None, id="by way of the folder"),
        pytest.param("/opt/ml/model/../secret", None, id="by way of the container's"),
        pytest.param("/opt/ml/modelx", None, id="a name that begins alike"),
        pytest.param("out", None, id="a link that leads out"),
        pytest.param("out/secret", None, id="below a link that leads out"),
        pytest.param("circle", None, id="a link to itself"),
        pytest.param("a\0b", None, id="a NUL"),
        pytest.param("a" * 300, None, id="a name that is too long"),
        pytest.param("a/" * 600, None, id="a path that is too long"),
    ],
)
def test_what_an_author_names_lies_in_the_model_folder(
    text: str, means: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    (folder / "a").mkdir(parents=True)
    (folder / "inner").symlink_to(folder / "a")
    (folder / "out").symlink_to(tmp_path)
    (folder / "circle").symlink_to("circle")
    (tmp_path / "model2").mkdir()
    found = path_inside(text, folder)
    assert found == (None if means is None else folder / means)


def test_a_download_from_the_hub_is_links_to_its_own_files(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (snapshot / "t.jinja").symlink_to("../../blobs/abc")
    (snapshot / "out").symlink_to("../../refs/main")
    assert path_inside("t.jinja", snapshot) == snapshot / "t.jinja"
    assert path_inside("out", snapshot) is None
