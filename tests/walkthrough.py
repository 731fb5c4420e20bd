"""Walks from an empty folder to a streamed answer, as a new user would: `make walkthrough`.

    python -m tests.walkthrough [FILE]

Runs each command for real in a separate folder, opens the playground in a browser, and writes
docs/first-answer.md with the output. It takes about a minute.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import expect
from tests.integration.console_rig import chromium
from tests.integration.platform import clean_environment
from tests.screenshots import picture

from hostelry.base.clock import monotonic_s

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "first-answer.md"
SHOT = "console/first-answer.png"  # next to the page
QUESTION = "What is the sea? One sentence."
HOME = "hostelry-home"
PROGRESS = re.compile(r"^.*\r", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and the reason for it."""

    why: str
    command: str


BEFORE = (
    Step(
        "Start a platform. It keeps running after the terminal is closed.", "hostelry up --detach"
    ),
    Step("Write a model. Any Hugging Face folder works, too.", "hostelry demo-model ./smollm2"),
    Step("Deploy. The programs at the end call the model.", "hostelry deploy ./smollm2"),
    Step(
        "Ask. The answer streams. Without `--once` it is a conversation.",
        f"hostelry chat smollm2 --once '{QUESTION}'",
    ),
    Step("Print a link to the console.", "hostelry console"),
)
AFTER = (
    Step("Remove the model with everything that only it uses.", "hostelry rm smollm2 --yes"),
    Step("Stop the platform.", "hostelry down"),
)


class Shell:
    """Commands in one folder. `lines` is the page so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        found = Path(sys.executable).parent
        self._environment: Mapping[str, str] = {
            **clean_environment(),
            "HOSTELRY_HOME": str(folder / HOME),
            "PATH": f"{found}{os.pathsep}{os.environ['PATH']}",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "TQDM_DISABLE": "1",
        }
        self.lines: list[str] = []

    def run(self, step: Step) -> str:
        """Run a command and return its output. Fails if the command fails."""
        print(f"$ {step.command}", flush=True)
        began_s = monotonic_s()
        done = subprocess.run(
            step.command,
            shell=True,
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        took_s = monotonic_s() - began_s
        assert done.returncode == 0, f"{step.command}\n{done.stdout}"
        printed = PROGRESS.sub("", done.stdout).replace(str(self._folder), "~").strip("\n")
        block = ["```", f"$ {step.command}", printed, "```"]
        self.lines += [f"{step.why} ({took_s:.1f} s)", "", *block, ""]
        return done.stdout


def asked_in_the_playground(link: str, file: Path) -> float:
    """Ask, save a picture to `file`, and return the seconds from the link to the answer's end."""
    began_s = monotonic_s()
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1100, "height": 620}, color_scheme="light")
        page.goto(link)
        page.get_by_role("link", name="Playground").click()
        page.get_by_placeholder("Say something").fill(QUESTION)
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_text(re.compile(r"first token .* tokens/s"))).to_be_visible()
        expect(page.get_by_role("button", name="Stop")).to_be_disabled()
        took_s = monotonic_s() - began_s
        file.write_bytes(picture(page))
    return took_s


def main(arguments: list[str]) -> None:
    """Run all steps, and write the page."""
    target = Path(arguments[0]) if arguments else PAGE
    with tempfile.TemporaryDirectory(prefix="hostelry-walk-") as name:
        shell = Shell(Path(name))
        began_s = monotonic_s()
        try:
            printed = [shell.run(step) for step in BEFORE]
            (target.parent / SHOT).parent.mkdir(parents=True, exist_ok=True)
            took_s = asked_in_the_playground(printed[-1].split()[0], target.parent / SHOT)
            sentence = f"In its playground the same question was answered after {took_s:.1f} s:"
            shell.lines += [sentence, "", f"![the playground]({SHOT})", ""]
            for step in AFTER[:1]:
                shell.run(step)
        finally:
            shell.run(AFTER[-1])
        in_all_s = monotonic_s() - began_s
    head = [
        "# From an empty folder to an answer",
        "",
        "These commands ran in this order, in an empty folder, on two cores without an",
        f"accelerator. Each is shown with its output and its time. In all: {in_all_s:.0f} s.",
        "`make walkthrough` runs them again and writes this page.",
        "",
    ]
    target.write_text("\n".join([*head, *shell.lines]).rstrip() + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
