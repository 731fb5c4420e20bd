import pytest

from hostelry.base.files import UnsafeFilesError
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.fleet.artifacts.objects import ObjectFacts
from hostelry.fleet.artifacts.store import Version, local_paths


def prefix(*keys: str) -> Version:
    return Version(
        key="k",
        source=ArtifactSource(uri="s3://b/p/", kind=SourceKind.PREFIX),
        objects=tuple(
            ObjectFacts(bucket="b", key=f"p/{key}", size_bytes=1, etag='"e"') for key in keys
        ),
    )


def test_the_objects_of_a_prefix_keep_their_paths() -> None:
    assert local_paths(prefix("config.json", "a/b/w")) == ["config.json", "a/b/w"]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        pytest.param(["../x"], "cannot be a path", id="a parent"),
        pytest.param(["a//b"], "cannot be a path", id="an empty part"),
        pytest.param(["a/" * 64 + "b"], "65 folders deep; 64", id="too deep"),
        pytest.param(["a", "a/b"], "below the file 'a'", id="a file that is a folder, too"),
        pytest.param(["a/b", "a"], "comes twice", id="a folder that is a file, too"),
        pytest.param(["\u00e9", "e\u0301"], "comes twice", id="one name in two Unicode forms"),
        pytest.param(["x" * 256], "too long a name", id="a long name"),
        pytest.param(["\ud800"], "not UTF-8", id="half a character"),
        pytest.param(
            [f"{n}/" * 60 + "f" for n in range(170)], "more than 10000 folders",
            id="folders that keys imply",
        ),
    ],
)  # fmt: skip
def test_keys_that_are_no_tree_of_files_are_refused(keys: list[str], reason: str) -> None:
    with pytest.raises(UnsafeFilesError) as caught:
        local_paths(prefix(*keys))
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 300
