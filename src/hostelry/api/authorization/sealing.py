"""The permissions that operations of KMS and Secrets Manager need."""

from collections.abc import Iterable, Mapping, Sequence

from hostelry.api.authorization.row import (
    AskedCall,
    FurtherRule,
    KeyRule,
    NeedRow,
    Rows,
    Target,
    TargetRule,
    build_need,
)
from hostelry.api.authorization.targets import build_name_rule, fill, find_one
from hostelry.api.kms.material import get_key_id
from hostelry.base.errors import ServiceError
from hostelry.permissions.needs.needed import ALL, NeededPermission
from hostelry.permissions.wildcard import Context

_ALIAS = "arn:aws:kms:{region}:{account}:{name}"
_KEY = "arn:aws:kms:{region}:{account}:key/{name}"


def _key(path: str) -> TargetRule:
    """The keys with the ids, aliases or ARNs at `path`. A refusal shows the request's text."""

    def find(call: AskedCall) -> Sequence[Target]:
        return [_find_key(call, it) for it in call.get_values(path)] or (Target(ALL),)

    return find


def _find_key(call: AskedCall, name: str) -> Target:
    if name.startswith("arn:"):
        return Target(call.lookup.find_arn("key", name) or name, name)
    template = _ALIAS if name.startswith("alias/") else _KEY
    return find_one(call, "key", name, template, template)


def _find_blob_key(path: str) -> TargetRule:
    """The key that the request expects, and the key that its ciphertext names."""

    def find(call: AskedCall) -> Sequence[Target]:
        found = [_find_key(call, it) for it in call.get_values(path)]
        blob = call.params.get("CiphertextBlob")
        key_id = _read_key_id(blob) if isinstance(blob, bytes) else ""
        if key_id:
            named_in_blob = find_one(call, "sealing-key", key_id, _KEY, _KEY)
            if named_in_blob.arn not in {it.arn for it in found}:
                found.append(named_in_blob)
        return found or (Target(ALL),)

    return find


def _read_key_id(blob: bytes) -> str:
    """The id of the key that a ciphertext names, or "" if it is not a ciphertext."""
    try:
        return get_key_id(blob)
    except ServiceError:
        return ""


def _find_key_keys(call: AskedCall, arn: str) -> Context:
    """The caller's account, and the properties and aliases of the key."""
    found: dict[str, Sequence[str]] = {"kms:calleraccount": (call.scope.account,)}
    if ":key/" in arn:
        found |= PROPERTIES
        found |= call.lookup.find_keys(arn)
    return found


def _alias_keys(path: str = "KeyId") -> KeyRule:
    """`kms:RequestAlias`, if the request names the key by an alias."""

    def find(call: AskedCall, _: str) -> Context:
        names = call.get_values(path)
        aliases = tuple("alias/" + it.partition("alias/")[2] for it in names if "alias/" in it)
        return {"kms:requestalias": aliases} if aliases else {}

    return find


PROPERTIES: Mapping[str, Sequence[str]] = {
    "kms:keyspec": ("SYMMETRIC_DEFAULT",),
    "kms:keyusage": ("ENCRYPT_DECRYPT",),
    "kms:keyorigin": ("AWS_KMS",),
    "kms:multiregion": ("false",),
}


def find_encryption_keys(pairs: Mapping[str, str]) -> Context:
    """The context keys of an encryption context."""
    found: dict[str, Sequence[str]] = {}
    for key, value in pairs.items():
        name = f"kms:EncryptionContext:{key}".lower()
        found[name] = (*found.get(name, ()), str(value))
    return {**found, "kms:encryptioncontextkeys": tuple(pairs)} if pairs else found


def _encryption_keys(member: str = "EncryptionContext") -> KeyRule:
    def find(call: AskedCall, _: str) -> Context:
        algorithm = {"kms:encryptionalgorithm": ("SYMMETRIC_DEFAULT",)}
        return {**algorithm, **find_encryption_keys(call.params.get(member) or {})}

    return find


def _re_encrypt(call: AskedCall) -> Iterable[NeededPermission]:
    """ReEncrypt: permissions on the old key and on the new key."""
    sources = _find_blob_key("SourceKeyId")(call)
    destinations = _key("DestinationKeyId")(call)
    same = {it.arn for it in sources} == {it.arn for it in destinations}
    shared = {"kms:reencryptonsamekey": ("true" if same else "false",)}
    sides = (
        ("kms:ReEncryptFrom", sources, "SourceKeyId", "SourceEncryptionContext"),
        ("kms:ReEncryptTo", destinations, "DestinationKeyId", "DestinationEncryptionContext"),
    )
    for action, targets, path, member in sides:
        for target in targets:
            keys = {
                **_find_key_keys(call, target.arn),
                **_alias_keys(path)(call, target.arn),
                **_encryption_keys(member)(call, target.arn),
                **shared,
            }
            yield build_need(call, action, target, keys)


_KEY_ROW = NeedRow(on=(_key("KeyId"),), more=(_find_key_keys,))
_CRYPT = NeedRow(on=(_key("KeyId"),), more=(_find_key_keys, _alias_keys(), _encryption_keys()))


def _find_new_key_keys(call: AskedCall, _: str) -> Context:
    """The properties of the key to be made, and the caller's account."""
    spec = call.get_values("KeySpec|CustomerMasterKeySpec")
    return {
        **PROPERTIES,
        **({"kms:keyspec": spec[:1]} if spec else {}),
        "kms:keyusage": call.get_values("KeyUsage") or PROPERTIES["kms:keyusage"],
        "kms:keyorigin": call.get_values("Origin") or PROPERTIES["kms:keyorigin"],
        "kms:multiregion": call.get_values("MultiRegion") or PROPERTIES["kms:multiregion"],
        "kms:calleraccount": (call.scope.account,),
    }


def _put_first_policy(call: AskedCall) -> Iterable[NeededPermission]:
    """CreateKey with a policy also puts the policy."""
    for _ in call.get_values("Policy"):
        keys = {"kms:calleraccount": (call.scope.account,)}
        yield build_need(call, "kms:PutKeyPolicy", _find_new_key(call)[0], keys)


def _find_new_key(call: AskedCall) -> Sequence[Target]:
    """The key to be made, whose id is not known yet."""
    return (Target(fill(_KEY, call, "*")),)


_LOCKOUT = {"kms:BypassPolicyLockoutSafetyCheck": "BypassPolicyLockoutSafetyCheck"}
_ALIAS_RULE = build_name_rule(_ALIAS, "AliasName")
KMS: Rows = {
    "CreateKey": NeedRow(
        keys=_LOCKOUT, more=(_find_new_key_keys,), tags="Tags", tagging="kms:TagResource",
        tagged=_find_new_key, further=(_put_first_policy,),
    ),
    "DescribeKey": NeedRow(on=(_key("KeyId"),), more=(_find_key_keys, _alias_keys())),
    "ListKeys": NeedRow(),
    "EnableKey": _KEY_ROW,
    "DisableKey": _KEY_ROW,
    "UpdateKeyDescription": _KEY_ROW,
    "ScheduleKeyDeletion": NeedRow(
        on=(_key("KeyId"),), more=(_find_key_keys,),
        keys={"kms:ScheduleKeyDeletionPendingWindowInDays": "PendingWindowInDays"},
    ),
    "CancelKeyDeletion": _KEY_ROW,
    "GetKeyPolicy": _KEY_ROW,
    "PutKeyPolicy": NeedRow(on=(_key("KeyId"),), more=(_find_key_keys,), keys=_LOCKOUT),
    "ListKeyPolicies": _KEY_ROW,
    "GetKeyRotationStatus": _KEY_ROW,
    # An alias is needed as well as its key: of UpdateAlias the old key and the new key.
    "CreateAlias": NeedRow(
        on=(_ALIAS_RULE, _key("TargetKeyId")), creates=True, more=(_find_key_keys,)
    ),
    "UpdateAlias": NeedRow(
        on=(_ALIAS_RULE, _key("AliasName"), _key("TargetKeyId")), more=(_find_key_keys,)
    ),
    "DeleteAlias": NeedRow(on=(_ALIAS_RULE, _key("AliasName")), more=(_find_key_keys,)),
    "ListAliases": NeedRow(),
    "Encrypt": _CRYPT,
    "Decrypt": NeedRow(
        on=(_find_blob_key("KeyId"),), more=(_find_key_keys, _alias_keys(), _encryption_keys())
    ),
    "ReEncrypt": _re_encrypt,
    "GenerateDataKey": _CRYPT,
    "GenerateDataKeyWithoutPlaintext": _CRYPT,
    "GenerateRandom": NeedRow(),
    "TagResource": NeedRow(on=(_key("KeyId"),), more=(_find_key_keys,), tags="Tags"),
    "UntagResource": NeedRow(on=(_key("KeyId"),), more=(_find_key_keys,), tag_keys="TagKeys"),
    "ListResourceTags": _KEY_ROW,
}  # fmt: skip

# A secret's ARN ends with a hyphen and six other characters, which are not known before the secret
# exists. Patterns such as NAME-?????? and NAME-* match this text.
_SECRET = "arn:aws:secretsmanager:{region}:{account}:secret:{name}-??????"


def _find_secret(call: AskedCall) -> Sequence[Target]:
    """The secret with the name or ARN. A refusal shows the request's text, as on AWS."""
    found = []
    for name in call.get_values("SecretId"):
        arn = call.lookup.find_arn("secret", name)
        if not arn and name.startswith("arn:"):
            arn = name
        found.append(
            Target(arn, name) if arn else find_one(call, "secret", name, _SECRET, "{name}")
        )
    return found or (Target(ALL),)


def _find_home_keys(call: AskedCall, _: str) -> Context:
    return {"secretsmanager:secretprimaryregion": (call.scope.region,)}


def _find_secret_keys(call: AskedCall, _: str) -> Context:
    """The KMS key of the request, as it is given and by its ARN."""
    names = call.get_values("KmsKeyId")
    arns = tuple(call.lookup.find_arn("key", it) or it for it in names)
    return {"secretsmanager:kmskeyid": names, "secretsmanager:kmskeyarn": arns} if names else {}


def _seal(*actions: str) -> FurtherRule:
    """The permissions of KMS for a secret under a customer's key, which the service uses."""

    def find(call: AskedCall) -> Iterable[NeededPermission]:
        secrets = _find_secret(call) if call.get_values("SecretId") else ()
        keys = [call.lookup.find_arn("secret-key", it.arn) for it in secrets]
        keys += [call.lookup.find_arn("customer-key", it) for it in call.get_values("KmsKeyId")]
        pairs = {"SecretARN": secrets[0].arn} if secrets else {}
        service = {"kms:viaservice": (f"secretsmanager.{call.scope.region}.amazonaws.com",)}
        for arn in dict.fromkeys(it for it in keys if it):
            for action in actions:
                context = {
                    **PROPERTIES,
                    "kms:calleraccount": (call.scope.account,),
                    **find_encryption_keys(pairs),
                    **service,
                }
                yield build_need(call, action, Target(arn), context)

    return find


_SECRET_KEYS: Mapping[str, str] = {"secretsmanager:SecretId": "SecretId"}


def _on_secret(
    keys: Mapping[str, str] = _SECRET_KEYS,
    further: tuple[FurtherRule, ...] = (),
    tags: str = "",
    tag_keys: str = "",
) -> NeedRow:
    return NeedRow(
        on=(_find_secret,),
        keys={**_SECRET_KEYS, **keys},
        more=(_find_home_keys, _find_secret_keys),
        further=further,
        tags=tags,
        tag_keys=tag_keys,
    )


_WRITES = ("kms:GenerateDataKey", "kms:Decrypt")
SECRETS: Rows = {
    "CreateSecret": NeedRow(
        on=(build_name_rule(_SECRET, "Name"),),
        creates=True,
        keys={
            "secretsmanager:Name": "Name",
            "secretsmanager:Description": "Description",
            "secretsmanager:Type": "Type",
            "secretsmanager:AddReplicaRegions": "AddReplicaRegions.Region",
            "secretsmanager:ForceOverwriteReplicaSecret": "ForceOverwriteReplicaSecret",
        },
        more=(_find_secret_keys,),
        tags="Tags",
        tagging="secretsmanager:TagResource",
        further=(_seal(*_WRITES),),
    ),
    "DescribeSecret": _on_secret(),
    "ListSecrets": NeedRow(),
    "UpdateSecret": _on_secret(
        {"secretsmanager:Description": "Description", "secretsmanager:Type": "Type"},
        further=(_seal(*_WRITES),),
    ),
    "DeleteSecret": _on_secret(
        {
            "secretsmanager:RecoveryWindowInDays": "RecoveryWindowInDays",
            "secretsmanager:ForceDeleteWithoutRecovery": "ForceDeleteWithoutRecovery",
        }
    ),
    "RestoreSecret": _on_secret(),
    "GetSecretValue": _on_secret(
        {
            "secretsmanager:VersionId": "VersionId",
            "secretsmanager:VersionStage": "VersionStage",
        },
        further=(_seal("kms:Decrypt"),),
    ),
    "PutSecretValue": _on_secret(further=(_seal(*_WRITES),)),
    "ListSecretVersionIds": _on_secret(),
    "GetResourcePolicy": _on_secret(),
    "PutResourcePolicy": _on_secret({"secretsmanager:BlockPublicPolicy": "BlockPublicPolicy"}),
    "DeleteResourcePolicy": _on_secret(),
    "TagResource": _on_secret(tags="Tags"),
    "UntagResource": _on_secret(tag_keys="TagKeys"),
}
ROWS: Mapping[str, Rows] = {"kms": KMS, "secretsmanager": SECRETS}
