"""KMS keys, and secrets with their versions."""

import msgspec

from hostelry.domain.scope import Scope


class KmsKey(msgspec.Struct, frozen=True, kw_only=True):
    """A symmetric key, named by its id. The home's root key seals `material` (base64).

    From `deletion_at` on the key is gone. `aws_service` names the service of an AWS managed key. It
    is empty for a customer's key.
    """

    scope: Scope
    key_id: str
    material: str
    created_at: float
    description: str = ""
    policy: str = ""
    is_enabled: bool = True
    deletion_at: float | None = None
    aws_service: str = ""

    @property
    def arn(self) -> str:
        """The key's ARN."""
        return key_arn(self.scope, self.key_id)

    @property
    def state(self) -> str:
        """AWS's KeyState, which says whether the key can be used."""
        if self.deletion_at is not None:
            return "PendingDeletion"
        return "Enabled" if self.is_enabled else "Disabled"


class KmsAlias(msgspec.Struct, frozen=True, kw_only=True):
    """Another name of a key, `alias/...`, which is the name of the record."""

    scope: Scope
    name: str
    key_id: str
    created_at: float
    updated_at: float

    @property
    def arn(self) -> str:
        """The alias's ARN."""
        return alias_arn(self.scope, self.name)


def key_arn(scope: Scope, key_id: str) -> str:
    """The ARN of the key with that id."""
    return f"arn:aws:kms:{scope.region}:{scope.account}:key/{key_id}"


def alias_arn(scope: Scope, name: str) -> str:
    """The ARN of the alias `name`, which starts with ``alias/``."""
    return f"arn:aws:kms:{scope.region}:{scope.account}:{name}"


CURRENT, PREVIOUS = "AWSCURRENT", "AWSPREVIOUS"


class SecretVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a secret, encrypted by KMS (`ciphertext`, base64), with its staging labels."""

    version_id: str
    created_at: float
    ciphertext: str
    key_arn: str
    is_text: bool
    stages: tuple[str, ...]


class StoredSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret. Its record has its name. `versions` are in order of creation.

    From `deletion_at` on the secret is gone. `deleted_at` is when the deletion was requested.
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

    def find_version(self, stage: str) -> SecretVersion | None:
        """The version that has the label, or None."""
        return next((it for it in self.versions if stage in it.stages), None)
