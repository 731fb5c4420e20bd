from pathlib import Path

from tests.cases import case, cases

from hostelry.containers.lmi.artifact_path import path_inside


@cases(
    "text, means",
    case("a file of the folder", "a/t.jinja", "a/t.jinja"),
    case("one that is not there", "none", "none"),
    case("as a container has it", "/opt/ml/model/a", "a"),
    case("the folder itself", "/opt/ml/model", "."),
    case("a link within", "inner", "inner"),
    case("a file of the machine", "/etc/passwd", None),
    case("a file beside the folder", "../secret", None),
    case("by way of the folder", "a/../../secret", None),
    case("by way of the container's", "/opt/ml/model/../secret", None),
    case("a name that begins alike", "/opt/ml/modelx", None),
    case("a link that leads out", "out", None),
    case("below a link that leads out", "out/secret", None),
    case("a link to itself", "circle", None),
    case("a NUL", "a\0b", None),
    case("a name that is too long", "a" * 300, None),
    case("a path that is too long", "a/" * 600, None),
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
