"""AES-256-GCM, by the OpenSSL that this interpreter's hashlib is linked to.

It is called through ctypes: the standard library has no cipher, and two functions do not justify
another compiled dependency.
"""

import _hashlib
import ctypes
import ctypes.util
import os
from functools import cache

from hostelry.base.errors import TerminalError

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
_SET_NONCE_BYTES, _GET_TAG, _SET_TAG = 0x9, 0x10, 0x11  # EVP_CTRL_GCM_*, openssl/evp.h
_POINTERS = ("EVP_CIPHER_CTX_new", "EVP_aes_256_gcm")


class NotAuthenticError(ValueError):
    """The sealed bytes, their key or their context are not those of the sealing."""


def seal(key: bytes, plaintext: bytes, context: bytes) -> bytes:
    """`plaintext` encrypted under a new nonce; `context` is authenticated with it, not stored."""
    nonce = os.urandom(NONCE_BYTES)
    ciphertext, tag = _run(key, nonce, plaintext, context, None)
    return nonce + ciphertext + tag


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """The plaintext of `sealed`; raises NotAuthenticError where anything was changed."""
    if len(sealed) < NONCE_BYTES + TAG_BYTES:
        raise NotAuthenticError("the sealed bytes are too short")
    nonce, tag = sealed[:NONCE_BYTES], sealed[-TAG_BYTES:]
    plaintext, _ = _run(key, nonce, sealed[NONCE_BYTES:-TAG_BYTES], context, tag)
    return plaintext


def _run(
    key: bytes, nonce: bytes, given: bytes, context: bytes, tag: bytes | None
) -> tuple[bytes, bytes]:
    """One pass of the cipher: the output and its tag; it decrypts where a `tag` is given."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
    crypto = _openssl()
    state = ctypes.c_void_p(crypto.EVP_CIPHER_CTX_new())
    out, written = ctypes.create_string_buffer(len(given) + TAG_BYTES), ctypes.c_int()
    found = ctypes.create_string_buffer(tag or b"", TAG_BYTES)
    length, encrypt = ctypes.byref(written), int(tag is None)
    try:
        cipher = ctypes.c_void_p(crypto.EVP_aes_256_gcm())
        _check(crypto.EVP_CipherInit_ex(state, cipher, None, None, None, encrypt))
        _check(crypto.EVP_CIPHER_CTX_ctrl(state, _SET_NONCE_BYTES, NONCE_BYTES, None))
        _check(crypto.EVP_CipherInit_ex(state, None, None, key, nonce, encrypt))
        if tag is not None:
            _check(crypto.EVP_CIPHER_CTX_ctrl(state, _SET_TAG, TAG_BYTES, found))
        if context:
            _check(crypto.EVP_CipherUpdate(state, None, length, context, len(context)))
        written.value = 0
        if given:
            _check(crypto.EVP_CipherUpdate(state, out, length, given, len(given)))
        done = written.value
        rest = ctypes.byref(out, done)
        if crypto.EVP_CipherFinal_ex(state, rest, length) != 1:
            raise NotAuthenticError("the sealed bytes are not authentic")
        if tag is None:
            _check(crypto.EVP_CIPHER_CTX_ctrl(state, _GET_TAG, TAG_BYTES, found))
        return out.raw[:done], found.raw
    finally:
        ctypes.memset(out, 0, len(out))
        crypto.EVP_CIPHER_CTX_free(state)


def _check(answer: int) -> None:
    if answer != 1:
        raise TerminalError("OpenSSL refuses AES-256-GCM on this machine")


@cache
def _openssl() -> ctypes.CDLL:
    """OpenSSL's libcrypto; raises TerminalError where there is none."""
    for name in (getattr(_hashlib, "__file__", None), ctypes.util.find_library("crypto")):
        if name is None:
            continue
        library = ctypes.CDLL(name)
        if hasattr(library, "EVP_aes_256_gcm"):
            return _typed(library)
    raise TerminalError("OpenSSL's libcrypto is not found: keys cannot be made or used without it")


def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    for name in _POINTERS:
        getattr(library, name).restype = ctypes.c_void_p
        getattr(library, name).argtypes = []
    pointer, number = ctypes.c_void_p, ctypes.c_int
    library.EVP_CIPHER_CTX_free.restype = None
    library.EVP_CIPHER_CTX_free.argtypes = [pointer]
    text = ctypes.c_char_p
    library.EVP_CipherInit_ex.argtypes = [pointer, pointer, pointer, text, text, number]
    library.EVP_CIPHER_CTX_ctrl.argtypes = [pointer, number, number, pointer]
    library.EVP_CipherUpdate.argtypes = [pointer, pointer, pointer, text, number]
    library.EVP_CipherFinal_ex.argtypes = [pointer, pointer, pointer]
    return library
