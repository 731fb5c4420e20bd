"""Key material: made, kept sealed by the root key, and used to encrypt.

A ciphertext is ``version, key id, nonce, encrypted bytes, tag``. The key's ARN and the encryption
context are authenticated with it: under another key or context it does not decrypt.
"""

import base64
import json
import os
from collections.abc import Mapping
from uuid import UUID

from hostelry.api.context import CallContext
from hostelry.base.errors import ServiceError, TerminalError
from hostelry.base.root_key import KEY_BYTES, NotAuthenticError, seal, unseal
from hostelry.domain.secret import KmsKey, key_arn

VERSION = b"\x01"
ID_BYTES = 16
MATERIAL = b"hostelry kms material "


def new_material(context: CallContext, key_id: str) -> str:
    """Random material for a new key, sealed by the root key."""
    root = _read_root_key(context, may_make=not context.state.kms_keys.list())
    sealed = seal(root, os.urandom(KEY_BYTES), MATERIAL + key_arn(context.scope, key_id).encode())
    return base64.b64encode(sealed).decode()


def encrypt(
    context: CallContext, key: KmsKey, plaintext: bytes, encryption_context: Mapping[str, str]
) -> bytes:
    """`plaintext` under the key, as KMS's CiphertextBlob."""
    sealed = seal(_unseal(context, key), plaintext, _bind(key, encryption_context))
    return VERSION + UUID(key.key_id).bytes + sealed


def decrypt(
    context: CallContext, key: KmsKey, blob: bytes, encryption_context: Mapping[str, str]
) -> bytes:
    """The plaintext of a CiphertextBlob. Raises InvalidCiphertextException."""
    try:
        sealed = blob[len(VERSION) + ID_BYTES :]
        return unseal(_unseal(context, key), sealed, _bind(key, encryption_context))
    except NotAuthenticError:
        raise invalid_ciphertext() from None


def get_key_id(blob: bytes) -> str:
    """The id of the key that made a CiphertextBlob. Raises InvalidCiphertextException."""
    if not blob.startswith(VERSION) or len(blob) < len(VERSION) + ID_BYTES:
        raise invalid_ciphertext()
    return str(UUID(bytes=blob[len(VERSION) : len(VERSION) + ID_BYTES]))


def _bind(key: KmsKey, encryption_context: Mapping[str, str]) -> bytes:
    """The bytes that are authenticated with a ciphertext."""
    pairs = json.dumps(sorted(encryption_context.items()), separators=(",", ":"))
    return f"hostelry kms {key.arn} {pairs}".encode()


def _unseal(context: CallContext, key: KmsKey) -> bytes:
    """The key's material. Raises KMSInternalException if another root key sealed it."""
    root = _read_root_key(context, may_make=False)
    try:
        return unseal(root, base64.b64decode(key.material), MATERIAL + key.arn.encode())
    except NotAuthenticError:
        message = f"The material of {key.arn} was sealed by another root key (kms.key)."
        raise ServiceError("KMSInternalException", message, 500) from None


def _read_root_key(context: CallContext, *, may_make: bool) -> bytes:
    try:
        return context.root_key.read(may_make=may_make)
    except (TerminalError, OSError) as error:
        raise ServiceError("KMSInternalException", str(error), 500) from error


def invalid_ciphertext() -> ServiceError:
    """The error for bytes that the key did not encrypt in that context. AWS gives no text."""
    return ServiceError("InvalidCiphertextException", "")
