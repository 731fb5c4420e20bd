"""Secrets and their versions."""

from dataclasses import dataclass

from hostelry.domain.scope import Scope

CURRENT, PREVIOUS = "AWSCURRENT", "AWSPREVIOUS"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretVersion:
    """One value of a secret, encrypted by KMS (`ciphertext`, base64); `stages` are its labels."""

    version_id: str
    created_at: float
    ciphertext: str
    key_arn: str
    is_text: bool
    stages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """A secret, by which name the record is named; `versions` are in the order they were made.

    `deletion_at` is the instant from which the secret is gone, `deleted_at` that of its deletion.
    """

    scope: Scope
    name: str
    arn: str
    created_at: float
    changed_at: float
    description: str = ""
    kms_key_id: str = ""
    deleted_at: float | None = None
    deletion_at: float | None = None
    versions: tuple[SecretVersion, ...] = ()

    def version(self, version_id: str) -> SecretVersion | None:
        """The version of that id, or None."""
        return next((it for it in self.versions if it.version_id == version_id), None)

    def labelled(self, stage: str) -> SecretVersion | None:
        """The version that has the label, or None."""
        return next((it for it in self.versions if stage in it.stages), None)
