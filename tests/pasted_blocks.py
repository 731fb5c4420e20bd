"""Blocks in README.md and the docs that readers may paste: those that tests run, and the others.

A block marked `sh` is for a shell, one marked `python` is a program. Blocks without a mark are
output, pictures and transcripts, whose commands begin with "$ ".
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
CONTINUED = re.compile(r"\\\n\s*")
# A line that only a shell can run. In a block without a mark, no test would find it.
INDENTED_COMMAND = re.compile(
    r"^    (?:\w+=\S+ )*(?:\S*/)?(?:hostelry|make|pip|python3?|podman|docker|helm|kubectl) ",
    re.MULTILINE,
)
COMMAND = re.compile(r"(?:\w+=\S+ )*(?:hostelry|make|pip|python3?|podman|docker|curl|eval|source) ")

INSTALLS = "installs packages from an index, for minutes"
OWN = "the reader's own name, file or id stands in it"
STAYS = "runs in the foreground until it is stopped"
FRAGMENT = "a part of a program: the example that the page names runs whole in a test"
# Shell lines, and programs by their first line, that no test runs, with the reason.
LEFT_OUT = {
    "README.md": {
        "python3 -m venv .venv && . .venv/bin/activate": INSTALLS,
        "pip install -c constraints.txt": INSTALLS,
    },
    "docs/backends.md": {"hostelry runtimes install vllm": INSTALLS, "OPTION_BACKEND=vllm": STAYS},
    "docs/choosing.md": {
        "hostelry fit --from-live": "needs a platform with minutes of records",
        "hostelry fit shop.toml": "needs the file of the line before it",
    },
    "docs/cost.md": {
        "hostelry cost --last": "needs a running platform and the reader's own prices",
        "hostelry cost chat": OWN,
    },
    "docs/embeddings.md": {"curl": "needs a model that embeds"},
    "docs/graphs.md": {
        "hostelry exec -- python examples/graph/deploy.py": INSTALLS,
        "hostelry explain --graph wine": "needs the graph of the line above it",
    },
    "docs/images.md": {"podman build": "needs a container engine and images of a registry"},
    "docs/lmi.md": {"python -m hostelry.containers.lmi": STAYS},
    "docs/predictive.md": {
        "HOSTELRY_CUSTOM_CODE=trusted hostelry up": "starts what only the lines below it need",
        "hostelry runtimes install sklearn:1.2": INSTALLS,
        "hostelry deploy model.joblib": OWN,
    },
    "docs/replay.md": {"hostelry replay --trace": OWN, "hostelry replay --calibrate": OWN},
    "docs/traces.md": {"hostelry trace 6f0f3b1e": OWN},
    "docs/triton.md": {
        "hostelry runtimes install triton": INSTALLS,
        "hostelry exec -- python examples/triton_ensemble/deploy.py": INSTALLS,
    },
    "docs/events.md": {"s3.put_bucket_notification_configuration(": FRAGMENT},
    "docs/experiments.md": {"sagemaker.create_inference_experiment(": FRAGMENT},
    "docs/pipelines.md": {"sagemaker.create_model(": FRAGMENT},
    "docs/schedules.md": {"scheduler.create_schedule(": FRAGMENT},
    "docs/shadow.md": {"sagemaker.create_endpoint_config(": FRAGMENT},
}
# Pages with commands in indented blocks, which are not run.
INDENTED = {
    "docs/cluster.md": "needs several hosts and a PostgreSQL",
    "docs/install.md": "installs packages, and needs root, other hosts, or a cluster",
}
# Commands that a page's reader has run before its first block, in addition to the README's.
BEFORE = {"docs/autoscaling.md": "hostelry scale chat --min 1 --max 1"}
AFTER_README = (
    "docs/autoscaling.md",
    "docs/engine.md",
    "docs/iam.md",
    "docs/llm-scores.md",
    "docs/quotas.md",
    "docs/tools.md",
    "docs/traces.md",
)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page: its mark, its text, and the number of its first line."""

    page: str
    mark: str
    text: str
    line: int

    @property
    def commands(self) -> list[str]:
        """The lines of a shell block, or a program as a single entry."""
        if self.mark == "python":
            return [self.text]
        lines = CONTINUED.sub(" ", self.text).split("\n")
        return [it for it in lines if it.strip() and not it.startswith("#")]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    text, name = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
    for found in FENCE.finditer(text):
        yield Block(name, found[1], found[2], text[: found.start()].count("\n") + 2)


def reason(page: str, command: str) -> str | None:
    """Why no test runs a command of the page. None if a test runs it."""
    left_out = LEFT_OUT.get(page, {})
    return next((why for first, why in left_out.items() if command.startswith(first)), None)


def script_of(page: str) -> str:
    """The script with all commands of a page as pasted, without those in LEFT_OUT."""
    lines = [BEFORE[page]] if page in BEFORE else []
    for block in blocks(ROOT / page):
        if block.mark not in ("sh", "python"):
            continue
        for command in block.commands:
            if reason(page, command) is None:
                is_program = block.mark == "python"
                lines.append(f"python - <<'END'\n{command}END" if is_program else command)
    return "\n".join(f"echo {shlex.quote('--- ' + it.splitlines()[0])}\n{it}" for it in lines)


def pasted_pages() -> list[str]:
    """The pages with at least one command that a test runs."""
    names = [str(it.relative_to(ROOT)) for it in PAGES]
    return [it for it in names if script_of(it)]
