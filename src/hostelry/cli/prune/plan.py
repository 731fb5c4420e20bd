"""Plan of `hostelry prune`: uploads and models that go, by what records name. Pure.

| upload, or former model | |
| --- | --- |
| a record names it, a folder that it is in, or a part of it | stays |
| put, or made, in the last hours | stays: a deployment may be about to name it |
| one of the newest `KEPT_MODELS` former models of a name | stays, for a rollback by hand |
| only former models that are removed name it | goes with them |
| anything else | goes |
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

KEPT_MODELS = 2
DEPLOYED, ADAPTERS = "deploy", "adapters"
# Of the digest in `deploy/DIGEST/`, and of the other two: with another length it is a program's.
DEPLOYED_LETTERS, DIGEST_LETTERS = 16, 32
HEX = frozenset("0123456789abcdef")
ARCHIVE = ".tar.gz"
S3 = "s3://"


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadObject:
    """An object, or the parts of one whose upload has not ended."""

    key: str
    num_bytes: int
    modified_at: float
    upload_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUpload:
    """Everything below one digest: what one command has uploaded for one artifact."""

    bucket: str
    prefix: str
    objects: tuple[UploadObject, ...]

    @property
    def uri(self) -> str:
        """Its address."""
        return f"{S3}{self.bucket}/{self.prefix}"

    @property
    def num_bytes(self) -> int:
        """Bytes of all its objects."""
        return sum(it.num_bytes for it in self.objects)

    @property
    def newest_at(self) -> float:
        """When its newest object was put."""
        return max((it.modified_at for it in self.objects), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedModel:
    """A model that `hostelry deploy` has made for `name`; `users` name it, other than itself."""

    model: str
    name: str
    created_at: float
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePlan:
    """What goes, each with the reason, and what stays."""

    models: tuple[tuple[DeployedModel, str], ...] = ()
    uploads: tuple[tuple[StoredUpload, str], ...] = ()
    kept: tuple[tuple[StoredUpload, str], ...] = ()

    @property
    def num_bytes(self) -> int:
        """Bytes of all objects that go."""
        return sum(it.num_bytes for it, _ in self.uploads)


def planned(
    uploads: Iterable[StoredUpload],
    models: Sequence[DeployedModel],
    uses: Mapping[str, Sequence[str]],
    now: float,
    least_age_s: float,
) -> PrunePlan:
    """The plan; `uses` has the records that name each address."""
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
    """The former models that go: all but the newest of each name that nothing uses."""
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
    """The records that name addresses, without those of `gone`."""

    def __init__(self, uses: Mapping[str, Sequence[str]], gone: Set[str] = frozenset()) -> None:
        kept = {uri: [it for it in users if it not in gone] for uri, users in uses.items()}
        self._users = {uri: users[0] for uri, users in kept.items() if users}
        self._sorted = sorted(self._users)

    def user_of(self, uri: str) -> str | None:
        """A record that names an upload, a folder that it is in, or a part of it."""
        whole = uri.rstrip("/")
        at = bisect_left(self._sorted, whole)
        if at < len(self._sorted) and self._sorted[at].startswith(whole):
            return self._users[self._sorted[at]]
        starts = (uri[:end] for end in range(len(S3), len(uri)))
        return next((self._users[it] for it in starts if it in self._users), None)


def upload_prefix(key: str, *, applied: bool) -> str | None:
    """The prefix of the upload that an object belongs to; None if no command has uploaded it.

    `applied` is of the bucket of `hostelry apply`, in which digests come first.
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
    """Whether a text is a digest of so many letters."""
    return len(text) == letters and HEX.issuperset(text)


def grouped(bucket: str, objects: Iterable[UploadObject], *, applied: bool) -> list[StoredUpload]:
    """The uploads of a bucket by their objects; others are left out."""
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
    """The parts of each upload that have not become an object in time; they take room alone."""
    found = []
    for upload in uploads:
        parts = (it for it in upload.objects if it.upload_id)
        old = tuple(it for it in parts if now - it.modified_at >= least_age_s)
        if old:
            found.append(replace(upload, objects=old))
    return found
