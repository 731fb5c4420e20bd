"""`hostelry prune`."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.cli.control_requests import control_answer
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.cli.named import api_errors
from hostelry.cli.prune.look import found_models, found_uploads, remove_upload
from hostelry.cli.prune.plan import PrunePlan, StoredUpload, planned
from hostelry.cli.status_text import columns, count_text, duration
from hostelry.cli.trace_text import bytes_text
from hostelry.cli.wait_display import waiting
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, UpConfig
from hostelry.home.upload_lock import removing

HOUR_S = 3600.0
DEFAULT_HOURS = 24.0


def prune(
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Remove the listed items. Default: only show them.")
    ] = False,
    older_than_hours: Annotated[
        float, typer.Option(min=1.0, help="Minimum age in hours of what is removed.")
    ] = DEFAULT_HOURS,
    sole_platform: Annotated[
        bool, typer.Option("--sole-platform", help="No other platform uses the S3 endpoint.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show unused uploads and former models, with sizes and reasons. With --yes, remove them.

    Uploads are those of `deploy`, `apply` and `adapters add`. An upload stays if a record names it,
    or if it is less than a day old. Of the former models that `deploy` made for a name, the newest
    two stay.

    With --s3-endpoint other platforms may use the same objects, so --yes needs --sole-platform.

    Exit code 1 if --yes is given while one of these commands runs.

    Example: hostelry prune

    Example: hostelry prune --yes --older-than-hours 168
    """
    at = home_at(home)
    running = settled(at)
    if yes:
        check_store(running[0], sole_platform=sole_platform)
    with api_errors(running[0]):
        if not yes:
            plan = look(running, older_than_hours * HOUR_S)
            show(plan, as_json=as_json, removed=False)
            return
        with removing(at), waiting() as display:
            plan = look(running, older_than_hours * HOUR_S)
            remove(plan, running, display.phase)
    show(plan, as_json=as_json, removed=True)


def check_store(config: UpConfig, *, sole_platform: bool) -> None:
    """Raise TerminalError for objects that the records of another platform may name."""
    if config.s3_endpoint is not None and not sole_platform:
        raise TerminalError(
            f"the objects are in {config.s3_endpoint}, and another platform that uses it may need"
            " what no record here names: add --sole-platform if there is no other"
        )


def look(running: tuple[UpConfig, Credentials], least_age_s: float) -> PrunePlan:
    """What goes and what stays, by what is there now."""
    now, credentials = SystemClock().now(), running[1]
    s3 = aws_client("s3", *running, read_timeout_s=60.0)
    # Uploads before uses: an object that is put and named meanwhile is not among them.
    uploads = found_uploads(s3, f"sagemaker-{credentials.region}-{credentials.account_id}")
    sagemaker = aws_client("sagemaker", *running, tries=2)
    uses = control_answer(*running, "/internal/artifact-uses", knows="what records name")
    models = found_models(sagemaker, uses["models"])
    return planned(uploads, models, uses["addresses"], now, least_age_s)


def remove(
    plan: PrunePlan, running: tuple[UpConfig, Credentials], phase: Callable[[str], None]
) -> None:
    """Remove models first: then nothing names the uploads that go."""
    sagemaker = aws_client("sagemaker", *running, tries=2)
    s3 = aws_client("s3", *running, read_timeout_s=60.0)
    for model, _ in plan.models:
        phase(f"removing model {model.model}")
        sagemaker.delete_model(ModelName=model.model)
    for number, (upload, _) in enumerate(plan.uploads, start=1):
        phase(f"removing {upload.uri} ({number} of {len(plan.uploads)})")
        remove_upload(s3, upload)


def show(plan: PrunePlan, *, as_json: bool, removed: bool) -> None:
    """Print what went, or would go, and what stays."""
    now = SystemClock().now()
    if as_json:
        print_json(document(plan, removed=removed))
        return
    rows = [("model", it.model, "", why) for it, why in plan.models]
    rows += [("upload", it.uri, size_text(it, now), why) for it, why in plan.uploads]
    models, uploads = (
        count_text(len(plan.models), "former model"),
        count_text(len(plan.uploads), "upload"),
    )
    what = f"{models} and {uploads}, {bytes_text(plan.num_bytes)}"
    kept = sum(it.num_bytes for it, _ in plan.kept)
    verb = "stays" if len(plan.kept) == 1 else "stay"
    stays = f"{count_text(len(plan.kept), 'upload')} {verb}, {bytes_text(kept)}."
    if not rows:
        typer.echo(f"Nothing to remove. {stays}")
        return
    lines = columns(rows)
    head = f"Removed {what}:" if removed else f"Would remove {what} (--yes removes them):"
    typer.echo("\n".join([head, *(f"  {line}" for line in lines), stays]))


def size_text(upload: StoredUpload, now: float) -> str:
    """The size and age of an upload."""
    return f"{bytes_text(upload.num_bytes)}, {duration(now - upload.newest_at)} old"


def document(plan: PrunePlan, *, removed: bool) -> dict[str, Any]:
    """A plan for programs."""

    def rows(uploads: tuple[tuple[StoredUpload, str], ...]) -> list[dict[str, Any]]:
        return [
            {"uri": it.uri, "bytes": it.num_bytes, "newest_at": it.newest_at, "reason": why}
            for it, why in uploads
        ]

    return {
        "removed": removed,
        "bytes": plan.num_bytes,
        "models": [{"model": it.model, "reason": why} for it, why in plan.models],
        "uploads": rows(plan.uploads),
        "kept": rows(plan.kept),
    }
