import pytest
from tests.cases import case, cases

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


@cases(
    "keys, reason",
    case("a parent", ["../x"], "cannot be a path"),
    case("an empty part", ["a//b"], "cannot be a path"),
    case("too deep", ["a/" * 64 + "b"], "65 folders deep; 64"),
    case("a file that is a folder, too", ["a", "a/b"], "below the file 'a'"),
    case("a folder that is a file, too", ["a/b", "a"], "comes twice"),
    case("one name in two Unicode forms", ["\u00e9", "e\u0301"], "comes twice"),
    case("a long name", ["x" * 256], "too long a name"),
    case("half a character", ["\ud800"], "not UTF-8"),
    case("folders that keys imply", [f"{n}/" * 60 + "f" for n in range(170)],
        "more than 10000 folders"),
)  # fmt: skip
def test_keys_that_are_no_tree_of_files_are_refused(keys: list[str], reason: str) -> None:
    with pytest.raises(UnsafeFilesError) as caught:
        local_paths(prefix(*keys))
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 300
