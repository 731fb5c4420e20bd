"""Encryption under KMS keys: of small values, and of data keys."""

import os
from collections.abc import Mapping

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.kms import lookup, material
from hostelry.api.kms.key import ALGORITHM
from hostelry.api.refusals import unsupported
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.secret import KmsKey

SPEC_BYTES: Mapping[str, int] = {"AES_256": 32, "AES_128": 16}
UNSUPPORTED = ("DryRun", "DryRunModifiers", "Recipient", "GrantTokens")
ALGORITHM_MEMBERS = (
    "EncryptionAlgorithm",
    "SourceEncryptionAlgorithm",
    "DestinationEncryptionAlgorithm",
)


def encrypt(context: CallContext, params: Params) -> Result:
    """Encrypt at most 4096 bytes."""
    _check_options(params)
    key = lookup.find_usable_key(context, params["KeyId"], is_shared=True)
    blob = material.encrypt(context, key, params["Plaintext"], _encryption_context(params))
    return {"CiphertextBlob": blob, "KeyId": key.arn, "EncryptionAlgorithm": ALGORITHM}


def decrypt(context: CallContext, params: Params) -> Result:
    """Decrypt, under the key that the ciphertext names."""
    _check_options(params)
    key, plaintext = _decrypt_blob(context, params, "KeyId", _encryption_context(params))
    return {"KeyId": key.arn, "Plaintext": plaintext, "EncryptionAlgorithm": ALGORITHM}


def re_encrypt(context: CallContext, params: Params) -> Result:
    """ReEncrypt: under another key or context, without showing the plaintext."""
    _check_options(params)
    source_pairs = _encryption_context(params, "SourceEncryptionContext")
    source, plaintext = _decrypt_blob(context, params, "SourceKeyId", source_pairs)
    key = lookup.find_usable_key(context, params["DestinationKeyId"], is_shared=True)
    new_pairs = _encryption_context(params, "DestinationEncryptionContext")
    return {
        "CiphertextBlob": material.encrypt(context, key, plaintext, new_pairs),
        "SourceKeyId": source.arn,
        "KeyId": key.arn,
        "SourceEncryptionAlgorithm": ALGORITHM,
        "DestinationEncryptionAlgorithm": ALGORITHM,
    }


def generate_data_key(context: CallContext, params: Params) -> Result:
    """GenerateDataKey: random bytes, in the clear and encrypted under the key."""
    _check_options(params)
    num_bytes = _count_data_key_bytes(params)
    key = lookup.find_usable_key(context, params["KeyId"], is_shared=True)
    plaintext = os.urandom(num_bytes)
    blob = material.encrypt(context, key, plaintext, _encryption_context(params))
    return {"CiphertextBlob": blob, "Plaintext": plaintext, "KeyId": key.arn}


def generate_data_key_without_plaintext(context: CallContext, params: Params) -> Result:
    """GenerateDataKeyWithoutPlaintext."""
    answer = generate_data_key(context, params)
    del answer["Plaintext"]
    return answer


def generate_random(_: CallContext, params: Params) -> Result:
    """GenerateRandom."""
    _check_options(params)
    if params.get("CustomKeyStoreId"):
        raise unsupported("CustomKeyStoreId")
    if not params.get("NumberOfBytes"):
        raise validation_error("NumberOfBytes is required.")
    return {"Plaintext": os.urandom(params["NumberOfBytes"])}


def _decrypt_blob(
    context: CallContext, params: Params, key_member: str, encryption_context: Mapping[str, str]
) -> tuple[KmsKey, bytes]:
    """The key and the plaintext of CiphertextBlob. The caller may name the expected key."""
    blob: bytes = params.get("CiphertextBlob", b"")
    if not blob:
        raise validation_error("CiphertextBlob is required.")
    key_id = material.get_key_id(blob)
    given = params.get(key_member)
    if given:
        expected = lookup.find_key(lookup.in_owners_scope(context, given), given).value
        if expected.key_id != key_id:
            raise ServiceError(
                "IncorrectKeyException",
                "The key ID in the request does not identify a CMK that can perform this"
                " operation.",
            )
    arn = lookup.find_sealing_key(context, key_id)
    if not arn:
        # AWS gives the same answer if the bytes name a missing key.
        raise material.invalid_ciphertext()
    key = lookup.find_usable_key(context, arn, is_shared=True)
    return key, material.decrypt(context, key, blob, encryption_context)


def _encryption_context(params: Params, member: str = "EncryptionContext") -> Mapping[str, str]:
    given: Mapping[str, str] = params.get(member) or {}
    return given


def _count_data_key_bytes(params: Params) -> int:
    spec, number = params.get("KeySpec"), params.get("NumberOfBytes")
    if (spec is None) == (number is None):
        raise validation_error("Please specify either number of bytes or key spec.")
    return SPEC_BYTES[spec] if spec is not None else int(number or 0)


def _check_options(params: Params) -> None:
    """Refuse algorithms of other kinds of keys, and unsupported members."""
    for name in UNSUPPORTED:
        if params.get(name):
            raise unsupported(name)
    for name in ALGORITHM_MEMBERS:
        if params.get(name, ALGORITHM) != ALGORITHM:
            message = f"Algorithm {params[name]} is incompatible with key spec {ALGORITHM}."
            raise ServiceError("InvalidKeyUsageException", message)
