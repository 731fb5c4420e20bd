"""KMS keys as the S3 proxy asks control for them, and S3's words for what is wrong with one."""

from collections.abc import Mapping
from typing import Any

import httpx

from hostelry.base.key_guard import INTERNAL_KEY_HEADER
from hostelry.base.peer_http import loopback_client
from hostelry.home.home import Credentials, UpConfig
from hostelry.s3.admission import S3Refusal

TIMEOUT_S = 10.0
STATES: Mapping[str, tuple[str, str]] = {
    "Disabled": ("KMS.DisabledException", "{} is disabled."),
    "PendingDeletion": ("KMS.KMSInvalidStateException", "{} is pending deletion."),
}


class KmsKeys:
    """Looks KMS keys up at control, by `mounts`, over connections that are kept."""

    def __init__(
        self,
        config: UpConfig,
        credentials: Credentials,
        mounts: Mapping[str, httpx.AsyncBaseTransport],
    ) -> None:
        self._address = config.control_url
        self._headers = {
            INTERNAL_KEY_HEADER: credentials.internal_key,
            "X-Hostelry-Account": credentials.account_id,
            "X-Hostelry-Region": credentials.region,
            "X-Hostelry-Service": "kms",
            "X-Amz-Target": "TrentService.DescribeKey",
            "Content-Type": "application/x-amz-json-1.1",
        }
        self._client = loopback_client(TIMEOUT_S, mounts)

    async def usable_arn(self, name: str) -> str:
        """The ARN of an enabled key of that name; raises S3Refusal with S3's error otherwise."""
        answer = await self._describe(name)
        if answer.status_code >= 500:
            raise away()
        found: dict[str, Any] = answer.json()
        if answer.status_code != 200:
            code = str(found.get("__type", "")).rpartition("#")[2]
            message = str(found.get("message") or found.get("Message") or "")
            raise S3Refusal(400, f"KMS.{code}", message)
        metadata = found["KeyMetadata"]
        arn = str(metadata["Arn"])
        if metadata["KeyState"] in STATES:
            code, message = STATES[metadata["KeyState"]]
            raise S3Refusal(400, code, message.format(arn))
        return arn

    async def _describe(self, name: str) -> httpx.Response:
        try:
            return await self._client.post(
                self._address, headers=self._headers, json={"KeyId": name}
            )
        except httpx.HTTPError:
            raise away() from None


def away() -> S3Refusal:
    """The answer while control restarts; SDKs try again."""
    return S3Refusal(503, "ServiceUnavailable", "The key service is restarting; try again.")
