"""`hostelry apply`: make the platform's resources match documents."""

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.declared.application import Application, AppliedEnd, AppliedStep, add_uploads
from hostelry.cli.declared.aws import AwsAtPlatform
from hostelry.cli.declared.expansion import wanted_state
from hostelry.cli.declared.local_artifacts import BUCKET
from hostelry.cli.declared.resource import (
    ABSENT,
    OLD_VERSION,
    UNNAMED_SET,
    ApplyStep,
    FieldChange,
    ResourceKey,
    ResourceKind,
    StepAct,
    StepPlan,
    UploadedFile,
)
from hostelry.cli.declared.schema import schema_text
from hostelry.cli.declared.source import read_sources
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.status_text import count_text
from hostelry.home.home import Credentials, UpConfig
from hostelry.home.upload_lock import uploading

DIFFERENT = 3
"""The exit code of --diff where there is something to change."""
QUIET_S = 10.0
PAST = {
    StepAct.UPLOAD: "uploaded",
    StepAct.CREATE: "created",
    StepAct.UPDATE: "updated",
    StepAct.TAG: "tagged",
    StepAct.DELETE: "deleted",
}
Line = tuple[str, str]
"""A colour ("" for none) and a text."""
MAX_VALUE = 90
LEFT_OUT = (
    "Specification.",
    "Container.",
    "ComputeResourceRequirements.",
    "Containers[0].",
    "ProductionVariants[AllTraffic].",
    "TargetTrackingScalingPolicyConfiguration.",
    "StepScalingPolicyConfiguration.",
    "ScalableTargetAction.",
)
"""Beginnings of fields that are clear without."""
SIGNS: Mapping[StepAct, tuple[str, str, str]] = {
    StepAct.CREATE: ("+", "green", "to create"),
    StepAct.UPDATE: ("~", "yellow", "to update"),
    StepAct.TAG: ("~", "yellow", "to update"),
    StepAct.DELETE: ("-", "red", "to delete"),
    StepAct.UPLOAD: ("^", "cyan", "to upload"),
}
REPLACE = ("-/+", "magenta", "to replace")


def apply(  # noqa: PLR0913 - the options of a command
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            "-f",
            help="YAML or JSON file, or folder of such files. Use - for standard input.",
        ),
    ] = None,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff",
            help=("Show the changes without making them. The exit code is 3 if there are changes."),
        ),
    ] = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help=(
                "Delete resources that an earlier version of the set created and this "
                "version does not name."
            ),
        ),
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Delete and replace resources without asking for confirmation."
        ),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until every resource is InService.")
    ] = True,
    bucket: Annotated[str, typer.Option(help="Bucket to upload local artifacts to.")] = BUCKET,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the documents and exit.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make endpoints, models, components, scaling and alarms match the documents.

    Exit code 0 if everything is done or nothing had to change, 1 if a step failed, 3 with --diff if
    there are changes.

    Example: hostelry apply -f shop.yaml --diff
    """
    if schema:
        typer.echo(schema_text(), nl=False)
        return
    if not file:
        raise typer.BadParameter("name a file, a folder, or - for standard input", param_hint="-f")
    at = home_at(home)
    config, credentials = load_home(at)
    application = build_application(file, bucket, config, credentials, prune=prune, waits=wait)
    if diff:
        plan = application.plan(application.observe())
        if as_json:
            print_json({"set": application.wanted.owner, "steps": steps_document(plan)})
        else:
            show(plan)
        raise typer.Exit(DIFFERENT if plan.steps else 0)
    began = time.perf_counter()
    with uploading(at):
        first = application.converge(lambda plan: confirm(plan, yes=yes, quiet=as_json))
    if as_json:
        print_json(report(application, first))
    elif first.steps:
        seconds = time.perf_counter() - began
        typer.echo(f"Applied: {summary(application)} in {seconds:.1f} s.")


def build_application(
    files: list[Path],
    bucket: str,
    config: UpConfig,
    credentials: Credentials,
    *,
    prune: bool,
    waits: bool,
) -> Application:
    """Read the documents and build their application. Raises TerminalError if they are invalid."""
    wanted = wanted_state(read_sources(files), credentials.role_arn)
    if prune and wanted.owner == UNNAMED_SET:
        raise UsageError(
            "--prune deletes what a set of documents made before and no longer names; give them a"
            " name first, a line `set: NAME` in one of them, and apply without --prune once"
        )
    wanted, uploads = add_uploads(wanted, bucket)
    is_terminal = sys.stderr.isatty()
    return Application(
        aws=AwsAtPlatform(config, credentials),
        wanted=wanted,
        uploads=uploads,
        prune=prune,
        pause=time.sleep,
        listener=TerminalProgress(is_terminal=is_terminal),
        waits=waits,
    )


def show(plan: StepPlan) -> None:
    """Print a plan, in colours on a terminal."""
    for colour, text in diff_lines(plan):
        typer.secho(text, fg=colour or None)


def confirm(plan: StepPlan, *, yes: bool, quiet: bool) -> None:
    """Show the plan. Ask before an endpoint or component is deleted or replaced.

    Raises TerminalError if the answer is no, or if the command cannot ask.
    """
    if not quiet:
        show(plan)
    ended = list(dict.fromkeys(str(it.key) for it in plan.steps if it.is_destructive))
    if not ended or yes:
        return
    if quiet or not sys.stdin.isatty():
        raise TerminalError(f"this deletes or replaces {', '.join(ended)}: give --yes to do it")
    if not typer.confirm(f"Delete or replace {', '.join(ended)}?"):
        raise TerminalError("nothing was changed")


def report(application: Application, first: StepPlan) -> dict[str, object]:
    """The result for JSON output."""
    return {
        "set": application.wanted.owner,
        "same": first.num_same,
        "steps": [
            {
                "act": one.step.act.value,
                "kind": one.step.key.kind.value,
                "name": one.step.key.name,
                "operation": one.step.operation,
                "end": one.end.value,
                "seconds": round(one.seconds, 3),
            }
            for one in application.outcomes
        ],
    }


def summary(application: Application) -> str:
    """The numbers of completed steps, by effect."""
    counts: dict[str, int] = {}
    for outcome in application.outcomes:
        if outcome.end is AppliedEnd.DONE:
            word = outcome.step.act.value
            counts[word] = counts.get(word, 0) + 1
    plural = {word: f"{word}{'' if count == 1 else 's'}" for word, count in counts.items()}
    return ", ".join(f"{count} {plural[word]}" for word, count in counts.items())


class TerminalProgress:
    """Prints progress to standard error. A terminal has one more line with the current waits."""

    def __init__(
        self,
        *,
        is_terminal: bool,
        write: Callable[[str], None] = lambda text: typer.echo(text, err=True, nl=False),
        now: Callable[[], float] = monotonic_s,
    ) -> None:
        self._is_terminal, self._write, self._now = is_terminal, write, now
        self._lock = threading.Lock()
        self._since: dict[ResourceKey, float] = {}
        self._statuses: dict[ResourceKey, tuple[str, float]] = {}
        self._sent: dict[ResourceKey, float] = {}
        self._width = 0

    def report_start(self, step: ApplyStep) -> None:
        """Note that a step has begun."""
        with self._lock:
            self._since[_get_key(step)] = self._now()

    def report_wait(self, key: ResourceKey, status: str) -> None:
        """Show a wait: in one line on a terminal, else per status and every ten seconds."""
        with self._lock:
            self._show(key, status, is_new=status != self._statuses.get(key, ("", 0.0))[0])

    def report_sent(self, step: ApplyStep, num_bytes: float) -> None:
        """Show the progress of an upload: in one line on a terminal, else every ten seconds."""
        assert step.file is not None, "a step that sends has a file"
        key = _get_key(step)
        with self._lock:
            sent = self._sent[key] = self._sent.get(key, 0.0) + num_bytes
            total = step.file.num_bytes
            status = f"{100 * sent / max(1, total):.0f} % of {size_text(total)}"
            self._show(key, status, is_new=False)

    def _show(self, key: ResourceKey, status: str, *, is_new: bool) -> None:
        now = self._now()
        since = self._since.setdefault(key, now)
        written_at = self._statuses.get(key, ("", since))[1]
        if self._is_terminal:
            self._statuses[key] = (status, now)
            self._show_line()
        elif is_new or now - written_at >= QUIET_S:
            self._statuses[key] = (status, now)
            self._write(f"  {key} {status} ({now - since:.0f} s)\n")

    def report_end(self, outcome: AppliedStep) -> None:
        """Print a line with the outcome of a step, and its duration."""
        with self._lock:
            step = outcome.step
            key = _get_key(step)
            for known in (self._statuses, self._since, self._sent):
                known.pop(key, None)
            self._clear_line()
            name = step.file.uri if step.file is not None else str(step.key)
            if outcome.end is AppliedEnd.DONE:
                self._write(f"{PAST[step.act]} {name} ({outcome.seconds:.1f} s)\n")
            elif outcome.end is not AppliedEnd.SKIPPED:
                reason = outcome.reason if outcome.end is AppliedEnd.FAILED else "changed meanwhile"
                self._write(f"{step.act.value} {name}: {reason}\n")
            if self._is_terminal and self._statuses:
                self._show_line()

    def _show_line(self) -> None:
        now = self._now()
        parts = [
            f"{key.name.rpartition('/')[2]} {status} {now - self._since.get(key, now):.0f} s"
            for key, (status, _) in self._statuses.items()
        ]
        more = f", and {len(parts) - 3} more" if len(parts) > 3 else ""
        self._clear_line()
        text = f"  {', '.join(parts[:3])}{more}"[:110]
        self._width = len(text)
        self._write(text)

    def _clear_line(self) -> None:
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0


def _get_key(step: ApplyStep) -> ResourceKey:
    """The resource of a step. Each file of an artifact has a separate address."""
    return step.key if step.file is None else ResourceKey(step.key.kind, step.file.uri)


def diff_lines(plan: StepPlan) -> list[Line]:
    """Every resource that changes, and a last line with the totals."""
    counts: dict[str, int] = {}
    lines: list[Line] = []
    uploads = _upload_lines(plan.steps)
    lines += uploads
    if uploads:
        counts["to upload"] = len(uploads)
    for key, steps in _by_resource(plan).items():
        sign, colour, word = _sign(steps)
        counts[word] = counts.get(word, 0) + 1
        because = "; ".join(dict.fromkeys(it.because for it in steps if it.because))
        lines.append((colour, f"{sign} {key}" + (f"  ({because})" if because else "")))
        for step in steps:
            lines += [_change_line(it) for it in step.changes]
    if not plan.steps:
        return [("", f"Nothing to change: {_same(plan)}.")]
    numbers = ", ".join(f"{count} {word}" for word, count in counts.items())
    return [*lines, ("", f"{numbers}; {_same(plan)}.")]


def _same(plan: StepPlan) -> str:
    verb = "is" if plan.num_same == 1 else "are"
    return f"{count_text(plan.num_same, 'resource')} {verb} as desired"


def _by_resource(plan: StepPlan) -> dict[ResourceKey, list[ApplyStep]]:
    found: dict[ResourceKey, list[ApplyStep]] = {}
    for step in plan.steps:
        if step.file is None and not _goes_with_endpoint(step):
            found.setdefault(step.key, []).append(step)
    return found


def _goes_with_endpoint(step: ApplyStep) -> bool:
    """Whether the step makes or replaces a configuration. Its fields are shown at the endpoint."""
    return step.key.kind is ResourceKind.CONFIG and step.because in ("", OLD_VERSION)


def _sign(steps: Sequence[ApplyStep]) -> tuple[str, str, str]:
    acts = [it.act for it in steps]
    if steps[0].key.kind is ResourceKind.MODEL:  # a new version, and the old one under its name
        acts = acts[:1] if StepAct.CREATE in acts[:1] else acts
    if StepAct.DELETE in acts and StepAct.CREATE in acts:
        return REPLACE
    for act in (StepAct.DELETE, StepAct.CREATE):
        if act in acts:
            return SIGNS[act]
    return SIGNS[acts[0]]


def _change_line(change: FieldChange) -> Line:
    field = short_field(change.field)
    if change.before is ABSENT:
        return "green", f"    + {field}: {value_text(change.after)}"
    if change.after is ABSENT:
        return "red", f"    - {field}: {value_text(change.before)}"
    before, after = value_text(change.before), value_text(change.after)
    return "yellow", f"    ~ {field}: {before} -> {after}"


def value_text(value: Any) -> str:
    """A value on one line, cut short."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."


def _upload_lines(steps: Sequence[ApplyStep]) -> list[Line]:
    """A line for each local artifact, which may be many files."""
    by_artifact: dict[str, list[UploadedFile]] = {}
    for step in steps:
        if step.file is not None:
            by_artifact.setdefault(step.key.name, []).append(step.file)
    lines = []
    for uri, files in by_artifact.items():
        path, size = files[0].path, size_text(sum(it.num_bytes for it in files))
        if uri != files[0].uri:  # files of a folder, below a prefix
            size = f"{len(files)} file{'' if len(files) == 1 else 's'}, {size}"
        lines.append(("cyan", f"^ {shown_path(path)} -> {uri} ({size})"))
    return lines


def shown_path(path: str) -> str:
    """A path, relative to the working directory if it is below it."""
    near = os.path.relpath(path)
    return path if near.startswith("..") else near


def short_field(field: str) -> str:
    """A field without the parts that documents leave out, too."""
    for prefix in LEFT_OUT:
        if field.startswith(prefix):
            return short_field(field.removeprefix(prefix))
    return field


def size_text(size_bytes: float) -> str:
    """A number of bytes in a suitable unit."""
    for unit in ("B", "kB", "MB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} GB"


def steps_document(plan: StepPlan) -> list[dict[str, Any]]:
    """The steps for JSON output."""
    return [
        {
            "number": one.number,
            "act": one.act.value,
            "kind": one.key.kind.value,
            "name": one.key.name,
            "within": one.key.within,
            "operation": one.operation,
            "needs": list(one.needs),
            "because": one.because,
            "changes": [_change_document(change) for change in one.changes],
        }
        for one in plan.steps
    ]


def _change_document(change: FieldChange) -> dict[str, Any]:
    found: dict[str, Any] = {"field": change.field}
    if change.before is not ABSENT:
        found["before"] = change.before
    if change.after is not ABSENT:
        found["after"] = change.after
    return found
