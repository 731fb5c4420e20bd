"""`hostelry prune`."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Annotated, Any

import msgspec
import typer
from msgspec.structs import replace

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.cli.control_requests import control_answer
from hostelry.cli.declared.local_artifacts import BUCKET as APPLIED
from hostelry.cli.deploy.steps import DEPLOYED_TAG
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.named import api_errors, list_rows
from hostelry.cli.status_text import columns, count_text, duration
from hostelry.cli.trace import bytes_text
from hostelry.cli.wait_display import waiting
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, UpConfig
from hostelry.home.upload_lock import removing

HOUR_S = 3600.0
DEFAULT_HOURS = 24.0
MAX_AT_ONCE = 1000  # objects in one DeleteObjects call
KEPT_MODELS = 2
DEPLOYED, ADAPTERS = "deploy", "adapters"
# Lengths of the digest in `deploy/DIGEST/`, and of the other digests. Other lengths are not ours.
DEPLOYED_LETTERS, DIGEST_LETTERS = 16, 32
HEX = frozenset("0123456789abcdef")
ARCHIVE = ".tar.gz"
S3 = "s3://"


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
    running = load_home(at)
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
    """Raise TerminalError if the records of another platform may name the objects."""
    if config.s3_endpoint is not None and not sole_platform:
        raise TerminalError(
            f"the objects are in {config.s3_endpoint}, and another platform that uses it may need"
            " what no record here names: add --sole-platform if there is no other"
        )


class UploadObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object, or the parts of an unfinished upload."""

    key: str
    num_bytes: int
    modified_at: float
    upload_id: str = ""


class StoredUpload(msgspec.Struct, frozen=True, kw_only=True):
    """All objects below one digest: one command uploaded them for one artifact."""

    bucket: str
    prefix: str
    objects: tuple[UploadObject, ...]

    @property
    def uri(self) -> str:
        """The address of the upload."""
        return f"{S3}{self.bucket}/{self.prefix}"

    @property
    def num_bytes(self) -> int:
        """The size of all its objects."""
        return sum(it.num_bytes for it in self.objects)

    @property
    def newest_at(self) -> float:
        """When its newest object was written."""
        return max((it.modified_at for it in self.objects), default=0.0)


class DeployedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that `hostelry deploy` has made for `name`. `users` are the records that name it."""

    model: str
    name: str
    created_at: float
    users: tuple[str, ...] = ()


class PrunePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The uploads and models to remove, with reasons, and those that stay."""

    models: tuple[tuple[DeployedModel, str], ...] = ()
    uploads: tuple[tuple[StoredUpload, str], ...] = ()
    kept: tuple[tuple[StoredUpload, str], ...] = ()

    @property
    def num_bytes(self) -> int:
        """The size of all objects to remove."""
        return sum(it.num_bytes for it, _ in self.uploads)


def look(running: tuple[UpConfig, Credentials], least_age_s: float) -> PrunePlan:
    """Plan which uploads and models are removed, from the platform's present state."""
    now, credentials = SystemClock().now(), running[1]
    s3 = aws_client("s3", *running, read_timeout_s=60.0)
    # Uploads are listed before uses, so that an upload used in between is seen as used.
    uploads = found_uploads(s3, f"sagemaker-{credentials.region}-{credentials.account_id}")
    sagemaker = aws_client("sagemaker", *running, tries=2)
    uses = control_answer(*running, "/internal/artifact-uses", knows="what records name")
    models = found_models(sagemaker, uses["models"])
    return plan_prune(uploads, models, uses["addresses"], now, least_age_s)


def remove(
    plan: PrunePlan, running: tuple[UpConfig, Credentials], phase: Callable[[str], None]
) -> None:
    """Remove models first, so that nothing names the removed uploads."""
    sagemaker = aws_client("sagemaker", *running, tries=2)
    s3 = aws_client("s3", *running, read_timeout_s=60.0)
    for model, _ in plan.models:
        phase(f"removing model {model.model}")
        sagemaker.delete_model(ModelName=model.model)
    for number, (upload, _) in enumerate(plan.uploads, start=1):
        phase(f"removing {upload.uri} ({number} of {len(plan.uploads)})")
        remove_upload(s3, upload)


def show(plan: PrunePlan, *, as_json: bool, removed: bool) -> None:
    """Print the removed or removable resources, and those that stay."""
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
    """A plan for JSON output."""

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


def found_uploads(s3: Any, own_bucket: str) -> list[StoredUpload]:
    """The uploads of `deploy`, `adapters add` and `apply`."""
    found = []
    for bucket in (own_bucket, APPLIED):
        if has_bucket(s3, bucket):
            objects = [*_objects(s3, bucket), *_parts(s3, bucket)]
            found += group_uploads(bucket, objects, applied=bucket == APPLIED)
    return found


def found_models(sagemaker: Any, uses: Mapping[str, Sequence[str]]) -> list[DeployedModel]:
    """The models that `deploy` has made, with the records that use each."""
    found = []
    for row in list_rows(sagemaker, "list_models", "Models"):
        tags = list_rows(sagemaker, "list_tags", "Tags", ResourceArn=row["ModelArn"])
        name = next((it["Value"] for it in tags if it["Key"] == DEPLOYED_TAG), None)
        if name is not None:
            model = row["ModelName"]
            users = tuple(it for it in uses.get(model, ()) if it != f"model {model}")
            created_at = row["CreationTime"].timestamp()
            found.append(DeployedModel(model=model, name=name, created_at=created_at, users=users))
    return found


def remove_upload(s3: Any, upload: StoredUpload) -> None:
    """Remove the objects of an upload, and parts of objects whose upload has not ended."""
    for one in upload.objects:
        if one.upload_id:
            s3.abort_multipart_upload(Bucket=upload.bucket, Key=one.key, UploadId=one.upload_id)
    keys = [it.key for it in upload.objects if not it.upload_id]
    for first in range(0, len(keys), MAX_AT_ONCE):
        chosen = [{"Key": it} for it in keys[first : first + MAX_AT_ONCE]]
        s3.delete_objects(Bucket=upload.bucket, Delete={"Objects": chosen, "Quiet": True})


def has_bucket(s3: Any, bucket: str) -> bool:
    """Whether the bucket exists."""
    from botocore.exceptions import ClientError

    try:
        s3.head_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404:
            return False
        raise
    return True


def _objects(s3: Any, bucket: str) -> Iterator[UploadObject]:
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for row in page.get("Contents", ()):
            yield UploadObject(
                key=row["Key"], num_bytes=row["Size"], modified_at=row["LastModified"].timestamp()
            )


def _parts(s3: Any, bucket: str) -> Iterator[UploadObject]:
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
        for row in page.get("Uploads", ()):
            where = {"Bucket": bucket, "Key": row["Key"], "UploadId": row["UploadId"]}
            pages = s3.get_paginator("list_parts").paginate(**where)
            sizes = (part["Size"] for one in pages for part in one.get("Parts", ()))
            yield UploadObject(
                key=row["Key"],
                num_bytes=sum(sizes),
                modified_at=row["Initiated"].timestamp(),
                upload_id=row["UploadId"],
            )


def plan_prune(
    uploads: Iterable[StoredUpload],
    models: Sequence[DeployedModel],
    uses: Mapping[str, Sequence[str]],
    now: float,
    least_age_s: float,
) -> PrunePlan:
    """Plan the removal. `uses` has the records that name each address."""
    former = former_models(models, now, least_age_s)
    every = AddressUses(uses)
    left = AddressUses(uses, {f"model {it.model}" for it, _ in former})
    removed, kept = [], []
    for upload in sorted(uploads, key=lambda it: it.uri):
        user = left.user_of(upload.uri)
        if user is not None:
            kept.append((upload, f"{user} names it"))
        elif now - upload.newest_at < least_age_s:
            kept.append((upload, "it was put a short time ago"))
        else:
            was = every.user_of(upload.uri)
            removed.append((upload, f"only {was} names it" if was else "no record names it"))
    broken = broken_off((it for it, _ in kept), now, least_age_s)
    removed += [(it, "parts of an upload that broke off") for it in broken]
    return PrunePlan(models=former, uploads=tuple(removed), kept=tuple(kept))


def former_models(
    models: Sequence[DeployedModel], now: float, least_age_s: float
) -> tuple[tuple[DeployedModel, str], ...]:
    """The former models to remove: unused models, except the newest of each name."""
    unused: dict[str, list[DeployedModel]] = {}
    for model in sorted(models, key=lambda it: (-it.created_at, it.model)):
        if not model.users:
            unused.setdefault(model.name, []).append(model)
    return tuple(
        (model, f"a former model of {name}; {KEPT_MODELS} newer ones stay")
        for name, found in sorted(unused.items())
        for model in found[KEPT_MODELS:]
        if now - model.created_at >= least_age_s
    )


class AddressUses:
    """The records that name addresses, without the records of the models in `gone`."""

    def __init__(self, uses: Mapping[str, Sequence[str]], gone: Set[str] = frozenset()) -> None:
        kept = {uri: [it for it in users if it not in gone] for uri, users in uses.items()}
        self._users = {uri: users[0] for uri, users in kept.items() if users}
        self._sorted = sorted(self._users)

    def user_of(self, uri: str) -> str | None:
        """A record that names an upload, a folder around it, or a part of it."""
        whole = uri.rstrip("/")
        at = bisect_left(self._sorted, whole)
        if at < len(self._sorted) and self._sorted[at].startswith(whole):
            return self._users[self._sorted[at]]
        starts = (uri[:end] for end in range(len(S3), len(uri)))
        return next((self._users[it] for it in starts if it in self._users), None)


def upload_prefix(key: str, *, applied: bool) -> str | None:
    """The prefix of the upload that an object belongs to. None if no command uploaded the object.

    `applied` is true for the bucket of `hostelry apply`, where keys begin with digests.
    """
    parts = key.split("/")
    if applied:
        is_own = len(parts) > 1 and is_digest(parts[0], DIGEST_LETTERS)
        return f"{parts[0]}/" if is_own else None
    if len(parts) > 2 and parts[0] == DEPLOYED and is_digest(parts[1], DEPLOYED_LETTERS):
        return f"{DEPLOYED}/{parts[1]}/"
    if len(parts) == 3 and parts[0] == ADAPTERS and parts[2].endswith(ARCHIVE):
        return key if is_digest(parts[2].removesuffix(ARCHIVE), DIGEST_LETTERS) else None
    return None


def is_digest(text: str, letters: int) -> bool:
    """True if `text` is a digest of this many letters."""
    return len(text) == letters and HEX.issuperset(text)


def group_uploads(
    bucket: str, objects: Iterable[UploadObject], *, applied: bool
) -> list[StoredUpload]:
    """The uploads in a bucket. Objects that no command uploaded are left out."""
    found: dict[str, list[UploadObject]] = {}
    for one in objects:
        prefix = upload_prefix(one.key, applied=applied)
        if prefix is not None:
            found.setdefault(prefix, []).append(one)
    return [
        StoredUpload(bucket=bucket, prefix=prefix, objects=tuple(mine))
        for prefix, mine in found.items()
    ]


def broken_off(
    uploads: Iterable[StoredUpload], now: float, least_age_s: float
) -> list[StoredUpload]:
    """The old parts of uploads that never became objects."""
    found = []
    for upload in uploads:
        parts = (it for it in upload.objects if it.upload_id)
        old = tuple(it for it in parts if now - it.modified_at >= least_age_s)
        if old:
            found.append(replace(upload, objects=old))
    return found
