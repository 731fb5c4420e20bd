"""One run of `hostelry deploy`: look at the source, plan, print, carry out, and show examples."""

import os
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer
from msgspec.structs import replace

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.files import expand_user, write_whole
from hostelry.base.json import decode
from hostelry.base.proc import PROC
from hostelry.base.runtimes import find_installed, runtimes_folder
from hostelry.cli.artifacts.files import FoundFile, digest_files
from hostelry.cli.control_requests import control_answer
from hostelry.cli.declared.application import Application
from hostelry.cli.declared.aws import AwsAtPlatform
from hostelry.cli.deploy.calls import (
    DeployProgress,
    carry_out,
    find_instance_type,
    find_objects,
)
from hostelry.cli.deploy.look import (
    look_at_archive,
    look_at_file,
    look_at_folder,
    look_at_hub,
    look_at_object,
    look_at_prefix,
)
from hostelry.cli.deploy.plan import (
    DeployAccount,
    DeployOptions,
    DeploySource,
    disk_need,
    plan_deployment,
)
from hostelry.cli.deploy.recognise import DeployKind, Here, Recognised, recognise
from hostelry.cli.deploy.reservation import Machine, check_instance_type, reservation
from hostelry.cli.deploy.source import (
    AdapterSource,
    Found,
    Origin,
    adapters_in,
    check_name,
    default_name,
    read_source,
)
from hostelry.cli.deploy.steps import (
    CREATE,
    UPDATE,
    build_uploads,
    build_wanted_state,
    check_free,
    component_key,
    list_texts,
    missing_objects,
)
from hostelry.cli.deploy.text import (
    DeployPlan,
    instances_text,
    machine_text,
    next_lines,
    plan_document,
    plan_lines,
    snippets,
)
from hostelry.cli.home_option import home_flag
from hostelry.cli.named import api_errors
from hostelry.cli.work_reporter import WorkReporter
from hostelry.fleet.host.usage import gpu_uses
from hostelry.fleet.rules.frameworks import CUSTOM_CODE, TRUSTED
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.home.run_file import live_run_file
from hostelry.home.upload_lock import uploading

FILE = "deploy-times.json"
MAX_KEPT = 200
LIKE = 2.0  # two deployments are similar if their sizes differ by at most this factor


def run_deploy(
    options: DeployOptions,
    home: Home,
    running: tuple[UpConfig, Credentials],
    *,
    plan_only: bool,
    as_json: bool,
) -> dict[str, Any]:
    """Deploy a model, and return the plan with its result as JSON. Raises TerminalError."""
    reporter = WorkReporter(to_stderr=as_json)
    with api_errors(running[0]):
        aws = AwsAtPlatform(*running)
        plan, application = make_plan(options, home, running, aws, reporter)
        if not as_json:
            typer.echo("\n".join(plan_lines(plan)))
        document = plan_document(plan)
        if plan_only:
            return document
        with (
            uploading(home),
            WorkReporter(to_stderr=as_json, usual_s=plan.usual_s) as reporter,
        ):
            application.listener = DeployProgress(
                reporter, plan.deployment.name, running, plan.new_bucket
            )
            carry_out(application, plan.deployment.name, home)
    recognised, deployment = plan.source.recognised, plan.deployment
    if plan.steps:
        reporter.line(f"{deployment.name} is in service")
        if plan.creates_component:
            keep(home.root, past(plan, reporter.elapsed_s))
    shown = snippets(recognised, deployment, home_flag(home.root))
    if not as_json:
        typer.echo("\n".join(next_lines(shown, deployment)))
    return {**document, "seconds": reporter.elapsed_s, "next": dict(shown.blocks)}


class PastDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """A successful deployment: its runtime, its size and its duration."""

    served: str
    num_bytes: int
    seconds: float


def past(plan: DeployPlan, seconds: float) -> PastDeployment:
    """The facts about a deployment that later deployments use to estimate their time."""
    recognised, found = plan.source.recognised, plan.source.found
    served = recognised.runtime or recognised.kind.value
    return PastDeployment(served=served, num_bytes=found.num_bytes, seconds=seconds)


def make_plan(
    options: DeployOptions,
    home: Home,
    running: tuple[UpConfig, Credentials],
    aws: AwsAtPlatform,
    reporter: WorkReporter,
) -> tuple[DeployPlan, Application]:
    """Plan the deployment from the source and the platform, without changes."""
    options = checked_options(options)
    s3 = aws.client("s3")
    found = look(options.source, options.kind, s3)
    runtimes = runtime_names()
    given_kind = None if options.kind == "image" else options.kind
    recognised = recognise(found, given_kind, Here(runtimes=runtimes))
    adapters = look_at_adapters(options.adapters, s3)
    source = DeploySource(
        found=found,
        recognised=recognised,
        adapters=adapters,
        digests=digests(found, adapters, reporter),
    )
    machine = this_machine(home.root)
    size = sum(it.size_bytes for it in found.files)
    reserved = reservation(recognised, size, machine, options.memory_mb)
    account = DeployAccount(region=running[1].region, account_id=running[1].account_id)
    present_type = find_instance_type(aws, options.name)
    deployment = plan_deployment(source, reserved, options, account, present_type)
    objects = find_objects(s3, deployment)
    present = objects or frozenset()
    too_much = disk_need(deployment, present, machine)
    if too_much is not None:
        raise TerminalError(too_much)
    placement = control_answer(*running, "/internal/placement", knows="what is free")
    named = [it for it in placement["endpoints"] if it["name"] == options.name]
    missing = missing_objects(deployment, present)
    application = Application(
        aws=aws,
        wanted=build_wanted_state(deployment, running[1].role_arn),
        uploads=build_uploads(deployment, missing),
        prune=False,
        pause=time.sleep,
        listener=DeployProgress(reporter, options.name, running),
    )
    observed = application.observe()
    check_free(deployment, observed)
    steps = application.plan(observed).steps
    new_bucket = deployment.bucket if objects is None else ""
    key = component_key(options.name)
    starts = {it.operation for it in steps if it.key == key} & {CREATE, UPDATE}
    component = observed.resources.get(key)
    running_copies = component.params.get("CopyCount", 0) if component else 0
    count = (deployment.copies or running_copies or 1) if starts else 0
    plan = DeployPlan(
        source=source,
        deployment=deployment,
        reserved=reserved,
        steps=list_texts(steps, new_bucket),
        new_bucket=new_bucket,
        creates_component=CREATE in starts,
        missing_bytes=sum(it.num_bytes for it in missing),
        room=(
            instances_text(deployment, named[0] if named else None, count),
            machine_text(deployment, count, machine),
        )
        if count
        else (),
        notes=(*recognised.notes, *notes(recognised, runtimes, home, running[0])),
        usual_s=None,
    )
    like = past(plan, 0.0)
    usual = usual_s(past_deployments(home.root), like.served, like.num_bytes)
    return replace(plan, usual_s=usual), application


def checked_options(options: DeployOptions) -> DeployOptions:
    """The options with a name, after checks that need no platform. Raises TerminalError."""
    text = options.source
    name = options.name or default_name(os.path.abspath(text) if os.path.exists(text) else text)
    check_name("--name", name)
    if options.instance_type is not None:
        check_instance_type(options.instance_type)
    return replace(options, name=name)


def look(text: str, kind: str | None, s3: Any) -> Found:
    """The contents of a source. Raises TerminalError."""
    path = expand_user(text)
    source = read_source(
        text, exists=path.exists(), is_folder=path.is_dir(), as_image=kind == "image"
    )
    match source.place:
        case Origin.FOLDER:
            return look_at_folder(path, text)
        case Origin.FILE:
            return look_at_file(path, text)
        case Origin.ARCHIVE:
            return look_at_archive(path, text)
        case Origin.PREFIX:
            return look_at_prefix(s3, source.value)
        case Origin.OBJECT:
            return look_at_object(s3, source.value)
        case Origin.HUB:
            return look_at_hub(source.value)
    return Found(given=source.value, place=Origin.IMAGE)


def look_at_adapters(text: str | None, s3: Any) -> tuple[AdapterSource, ...]:
    """The adapters of --adapters. Raises TerminalError."""
    if text is None:
        return ()
    found = look(text, None, s3)
    if found.place is Origin.HUB:
        raise UsageError(
            f"--adapters {text} is not in the cache of the hub's models here: fetch it first, with "
            f"`hf download {text.removeprefix('hf://')}`"
        )
    return adapters_in(found)


def digests(
    found: Found, adapters: tuple[AdapterSource, ...], reporter: WorkReporter
) -> dict[str, str]:
    """SHA-256 of all files that may be uploaded."""
    own: tuple[FoundFile, ...] = (found.archive,) if found.archive else found.files
    files = [*own, *(it for adapter in adapters for it in adapter.files)]
    total = sum(it.size_bytes for it in files if it.path)
    with reporter.count_bytes("read", total) as advance:
        return digest_files(files, advance)


def runtime_names() -> list[str]:
    """The folders of the runtimes that are installed."""
    folder = runtimes_folder(os.environ)
    names = [it.name for it in folder.iterdir()] if folder.is_dir() else []
    return [it for it in names if find_installed(folder, it) is not None]


def this_machine(home: Path) -> Machine:
    """The resources of this machine."""
    page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    memory = page * pages
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        accelerators=len({it.device for it in gpu_uses().values()}),
        memory_bytes=memory,
        free_bytes=available_bytes() or memory,
        free_disk_bytes=shutil.disk_usage(home).free,
    )


def available_bytes() -> int | None:
    """Memory that could be used now. None if the kernel does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [it.split()[1] for it in lines if it.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None


def notes(recognised: Recognised, runtimes: list[str], home: Home, config: UpConfig) -> list[str]:
    """Further remarks: a runtime that must be installed, or trust in a model's code."""
    found = []
    runtime = recognised.runtime
    if runtime and runtime.replace(":", "-") not in runtimes:
        found.append(
            f"{runtime} is not installed: the first copy installs it, which takes minutes; now: "
            f"hostelry runtimes install {runtime}"
        )
    runs_code = recognised.kind in (DeployKind.FRAMEWORK, DeployKind.TRITON)
    if runs_code and config.copy_user is None and not trusts_code(home):
        found.append(
            "its files are code, and copies have no user of their own here: it will fail unless "
            f"`hostelry up` is started with {CUSTOM_CODE}={TRUSTED} (if you trust its author)"
        )
    return found


def trusts_code(home: Home) -> bool:
    """Whether the running platform was started with HOSTELRY_CUSTOM_CODE=trusted."""
    record = live_run_file(home, "control")
    try:
        environment = (PROC / str(record.pid) / "environ").read_bytes() if record else b""
    except OSError:
        return False
    return f"{CUSTOM_CODE}={TRUSTED}".encode() in environment.split(b"\0")


def usual_s(past: Sequence[PastDeployment], served: str, num_bytes: int) -> float | None:
    """The median time of similar past deployments. None without a similar one."""
    like = [
        one.seconds
        for one in past
        if one.served == served and num_bytes / LIKE <= one.num_bytes <= max(num_bytes * LIKE, 1)
    ]
    return statistics.median(like) if like else None


def past_deployments(home: Path) -> list[PastDeployment]:
    """The past deployments that the home keeps. Empty if their file is missing or unreadable."""
    try:
        return decode((home / FILE).read_bytes(), list[PastDeployment])
    except (OSError, msgspec.DecodeError):
        return []


def keep(home: Path, one: PastDeployment) -> None:
    """Add a deployment to the home's file. A full disk only loses this entry."""
    kept = [*past_deployments(home), one][-MAX_KEPT:]
    try:
        write_whole(home / FILE, msgspec.json.encode(kept), durable=False)
    except OSError:
        return
