"""Commands and programs that the README and the docs have a reader paste, in an empty home."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.integration.platform import clean_environment
from tests.pasted_blocks import AFTER_README, ROOT, pasted_pages, script_of

LONG_PAGES = ("docs/choosing.md",)  # it simulates a thousand models
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
README = "README.md"
QUESTION = "What is the sea?\n"  # for the commands that take a question from a terminal


class Reader:
    """A reader in a folder with the repository's examples, and an empty home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "examples").symlink_to(ROOT / "examples")
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        scripts = Path(sys.executable).parent
        self.environment: Mapping[str, str] = {
            **clean_environment(),
            "HOME": str(folder / "user"),
            "HOSTELRY_HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(cache),  # the demo's model is made once for all tests
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "SHELL": "/bin/bash",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        (folder / "user").mkdir()

    def paste(self, script: str) -> str:
        """The output of a shell. Fails the test at the first failing command."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment,
            input=QUESTION,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=800,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout

    def down(self) -> None:
        """Stop the platforms that were started."""
        for home in ("home", "restored"):
            if (self.folder / home).exists():
                self.paste(f"hostelry down --home {home}")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    found = Reader(tmp_path)
    try:
        yield found
    finally:
        found.down()


@pytest.mark.thorough
def test_the_readme_and_the_pages_that_go_on_from_it(reader: Reader) -> None:
    env = 'eval "$(hostelry env)"'
    script = "\n".join([script_of(README), env, *map(script_of, AFTER_README)])
    printed = reader.paste(script)
    assert "smollm2 is in service" in printed
    assert "tokens/s]" in printed
    answer = printed.split("--- python - <<'END'")[1].split("--- ")[0]
    assert len(answer.split()) > 3, "the example prints an answer"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.thorough] if page in LONG_PAGES else [])
        for page in pasted_pages()
        if page not in (README, *AFTER_README)
    ],
)
def test_a_page_alone(reader: Reader, page: str) -> None:
    script = script_of(page)
    needs_platform = any(it in script for it in ("dashboards", "exec", "backup"))
    reader.paste(f"hostelry up --detach\n{script}" if needs_platform else script)
