"""AWS's example notebooks at one commit, from a local folder or from GitHub."""

import fcntl
import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

VARIABLE = "HOSTELRY_AWS_EXAMPLES"
REPOSITORY = "https://github.com/aws/amazon-sagemaker-examples"
COMMIT = "2d519b52c3a2c2361f2b87f0d3de46fd6c0232a5"
FETCH_TIMEOUT_S = 300


class Examples:
    """The repository at `COMMIT`. `folder` is its git directory, or a checkout."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, path: str) -> bytes:
        """A file's bytes."""
        return git(self._folder, "cat-file", "blob", f"{COMMIT}:{path}")

    def take(self, folder: str, target: Path) -> None:
        """Write a folder of the repository to the new folder `target`."""
        with tarfile.open(
            fileobj=BytesIO(git(self._folder, "archive", f"{COMMIT}:{folder}"))
        ) as archive:
            archive.extractall(target, filter="data")


def aws_examples() -> Examples:
    """The repository. Skips the test if neither `VARIABLE` nor GitHub has it."""
    named = os.environ.get(VARIABLE)
    if named:
        try:
            git(Path(named), "cat-file", "-e", f"{COMMIT}^{{commit}}")
        except subprocess.CalledProcessError as error:
            pytest.fail(f"{VARIABLE} is {named}, which has no commit {COMMIT}: {words_of(error)}")
        return Examples(Path(named))
    try:
        return Examples(fetched())
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(
            f"{VARIABLE} names no copy of {REPOSITORY}, and its commit {COMMIT} cannot be fetched "
            f"from there: {words_of(error)}"
        )


def words_of(error: subprocess.SubprocessError) -> str:
    """The last line of git's output."""
    message: bytes = getattr(error, "stderr", None) or b"nothing"
    return message.decode(errors="replace")[-300:]


def fetched() -> Path:
    """A git directory with only this commit. It gets each file from GitHub when it is read."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "hostelry" / "aws-examples.git"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "shallow").exists():
            git(folder, "init", "--quiet", "--bare")
            git(folder, "config", "remote.origin.url", REPOSITORY)
            git(
                folder,
                "fetch",
                "--quiet",
                "--depth=1",
                "--filter=blob:none",
                "origin",
                f"{COMMIT}:refs/heads/pinned",
            )
    return folder


def git(folder: Path, *arguments: str) -> bytes:
    """The output of git. Raises CalledProcessError with git's message if it fails."""
    return subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", str(folder), *arguments],
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        capture_output=True,
        timeout=FETCH_TIMEOUT_S,
        check=True,
    ).stdout
