"""Permanent access keys. Their secrets are derived from their ids, so that no secret is stored."""

import base64
from hmac import digest as hmac_digest

_SECRET_CHARACTERS = 40
STORE_KEY_ID = "HOSTELRYOBJECTSTORE"
"""The access key id with which the object store asks for data keys of any account's KMS key."""


class AccessKeySecrets:
    """Derives secret access keys.

    Args:
        home_key: a secret that control and gateways of one platform share, and no other process
            knows.
    """

    def __init__(self, home_key: str) -> None:
        self._key = hmac_digest(home_key.encode(), b"hostelry access keys 1", "sha256")

    def derive(self, access_key_id: str) -> str:
        """The secret access key of an access key id, whether that key exists or not."""
        drawn = hmac_digest(self._key, access_key_id.encode(), "sha256")
        return base64.b64encode(drawn).decode()[:_SECRET_CHARACTERS]
