"""Paths of the machine in texts for callers."""

import time

import pytest

from hostelry.base.shown_paths import ShownPaths

PATHS = ShownPaths(
    "/srv/h/instances", ["/srv/h", "/srv/runtimes", "/srv/ours/src", "/usr", "/", ""]
)
COPY = "/srv/h/instances/i-1/copies/c-2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f'File "{COPY}/model/code/x.py", line 1',
                     'File "/opt/ml/model/code/x.py", line 1', id="a file of the model"),
        pytest.param(f"in {COPY}/model.", "in /opt/ml/model.", id="the model's folder"),
        pytest.param(f"{COPY}/model/a:{COPY}/model/b", "/opt/ml/model/a:/opt/ml/model/b",
                     id="several"),
        pytest.param("/srv/h/instances/i-1/cache/0af/files/w.bin", "/opt/ml/models/0af/model/w.bin",
                     id="a file of one of many models"),
        pytest.param(f"'{COPY}/log'", "'log'", id="another file of the copy"),
        pytest.param(f"{COPY}/models/x", "models/x", id="a folder with a longer name"),
        pytest.param("/srv/h/instances/i-1/lock", "instances/i-1/lock", id="a file of the home"),
        pytest.param("/srv/runtimes/sklearn-1.2 is full", "sklearn-1.2 is full", id="a runtime"),
        pytest.param("/srv/runtimes cannot be written", "runtimes cannot be written",
                     id="the folder of runtimes"),
        pytest.param("/srv/runtimes/a/lib/python3.8/site-packages/b.py",
                     "lib/python3.8/site-packages/b.py", id="a file of a runtime"),
        pytest.param('"/root/.pyenv/versions/3.8.18/lib/python3.8/x.py", "/usr/lib/python3.11/y"',
                     '"lib/python3.8/x.py", "lib/python3.11/y"', id="Python's own files"),
        pytest.param("/srv/ours/src/hostelry/a.py", "hostelry/a.py", id="a file of ours"),
        pytest.param("/srv/h2/x /srv/h.d/x /other/srv/h/x s3://b/srv/h/x",
                     "/srv/h2/x /srv/h.d/x /other/srv/h/x s3://b/srv/h/x", id="other paths stay"),
        pytest.param("/opt/ml/model/a lib/python3", "/opt/ml/model/a lib/python3",
                     id="what a container has too"),
        pytest.param("/usr/bin/ffmpeg: not found", "/usr/bin/ffmpeg: not found",
                     id="a program of the system, where Python is the system's"),
        pytest.param("https://host/lib/python3.11/x", "https://host/lib/python3.11/x",
                     id="an address"),
        pytest.param("no path", "no path", id="no path"),
    ],
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
