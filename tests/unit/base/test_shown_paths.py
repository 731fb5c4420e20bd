"""Paths of the machine in texts for callers."""

import time

import pytest
from tests.cases import case, cases

from hostelry.base.shown_paths import ShownPaths

PATHS = ShownPaths(
    "/srv/h/instances", ["/srv/h", "/srv/runtimes", "/srv/ours/src", "/usr", "/", ""]
)
COPY = "/srv/h/instances/i-1/copies/c-2"


@cases(
    "text, expected",
    case("a file of the model", f'File "{COPY}/model/code/x.py", line 1',
        'File "/opt/ml/model/code/x.py", line 1'),
    case("the model's folder", f"in {COPY}/model.", "in /opt/ml/model."),
    case("several", f"{COPY}/model/a:{COPY}/model/b", "/opt/ml/model/a:/opt/ml/model/b"),
    case("a file of one of many models", "/srv/h/instances/i-1/cache/0af/files/w.bin",
        "/opt/ml/models/0af/model/w.bin"),
    case("another file of the copy", f"'{COPY}/log'", "'log'"),
    case("a folder with a longer name", f"{COPY}/models/x", "models/x"),
    case("a file of the home", "/srv/h/instances/i-1/lock", "instances/i-1/lock"),
    case("a runtime", "/srv/runtimes/sklearn-1.2 is full", "sklearn-1.2 is full"),
    case("the folder of runtimes", "/srv/runtimes cannot be written", "runtimes cannot be written"),
    case("a file of a runtime", "/srv/runtimes/a/lib/python3.8/site-packages/b.py",
        "lib/python3.8/site-packages/b.py"),
    case("Python's own files",
        '"/root/.pyenv/versions/3.8.18/lib/python3.8/x.py", "/usr/lib/python3.11/y"',
        '"lib/python3.8/x.py", "lib/python3.11/y"'),
    case("a file of ours", "/srv/ours/src/hostelry/a.py", "hostelry/a.py"),
    case("other paths stay", "/srv/h2/x /srv/h.d/x /other/srv/h/x s3://b/srv/h/x",
        "/srv/h2/x /srv/h.d/x /other/srv/h/x s3://b/srv/h/x"),
    case("what a container has too", "/opt/ml/model/a lib/python3", "/opt/ml/model/a lib/python3"),
    case("a program of the system, where Python is the system's", "/usr/bin/ffmpeg: not found",
        "/usr/bin/ffmpeg: not found"),
    case("an address", "https://host/lib/python3.11/x", "https://host/lib/python3.11/x"),
    case("no path", "no path", "no path"),
)  # fmt: skip
def test_paths_are_shown_as_a_container_has_them(text: str, expected: str) -> None:
    assert PATHS.text(text) == expected


@pytest.mark.parametrize(
    "text",
    ["/a" * 100_000, "/" * 200_000, COPY * 10_000, "lib/python3" * 20_000,
     "/srv/h/instances/" * 10_000],
    ids=["a long path", "slashes", "copies", "environments", "instances"],
)  # fmt: skip
def test_a_long_text_takes_linear_time(text: str) -> None:
    began = time.process_time()
    PATHS.text(text)
    assert time.process_time() - began < 2


def test_without_further_folders_other_paths_stay() -> None:
    text = "no /opt/x/ and / and https://host/a"
    assert ShownPaths("/srv/h/instances", ["/usr"]).text(text) == text
