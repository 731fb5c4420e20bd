"""The JumpStart catalogue of the embedded object store, at AWS's place, without a usable model.

The SageMaker SDK v3 reads it for every model that a program names by a text. It learns that the
text does not name a JumpStart model only from a catalogue with at least one model.
"""

import logging
from collections.abc import Mapping

import msgspec

from hostelry.base.errors import RetryableError
from hostelry.home.home import Credentials
from hostelry.home.signed_call import SignedApi

# The SDK shows this name after "Did you mean", and refuses it, as its version is below every SDK's.
NO_MODEL: Mapping[str, str] = {
    "model_id": "hostelry-has-no-jumpstart-models",
    "version": "1.0.0",
    "min_version": "9999.0.0",
    "spec_key": "hostelry/none.json",
}
CALL_S = 3.0
CATALOGUES = ("models_manifest.json", "proprietary-sdk-manifest.json")

LOG = logging.getLogger(__name__)


def catalogue_bucket(region: str) -> str:
    """The bucket that AWS's programs read in a region."""
    return f"jumpstart-cache-prod-{region}"


def stock_catalogues(url: str, credentials: Credentials) -> None:
    """Put each missing catalogue. An operator's own catalogue, such as a mirror of AWS's, stays.

    An error is only logged, because only programs that ask for a catalogue fail without it.
    """
    s3 = SignedApi(service="s3", url=url, credentials=credentials, timeout_s=CALL_S)

    def ask(method: str, key: str = "", body: bytes = b"") -> bool:
        """Whether the bucket, or the object in it, exists. Raises RetryableError."""
        path = f"/{catalogue_bucket(credentials.region)}{key and f'/{key}'}"
        answer = s3.call(method, path, body)
        if answer.status != 200 and (method, answer.status) != ("HEAD", 404):
            raise RetryableError(f"{method} {path}: {answer}")
        return answer.status == 200

    try:
        missing = [key for key in CATALOGUES if not ask("HEAD", key)]
        if missing and not ask("HEAD"):
            ask("PUT", body=location(credentials.region))
        for key in missing:
            ask("PUT", key, msgspec.json.encode([NO_MODEL]))
    except RetryableError as error:
        LOG.warning("the JumpStart catalogue cannot be written: %s", error)


def location(region: str) -> bytes:
    """The body of CreateBucket for a region: us-east-1 has none."""
    if region == "us-east-1":
        return b""
    constraint = f"<LocationConstraint>{region}</LocationConstraint>"
    return f"<CreateBucketConfiguration>{constraint}</CreateBucketConfiguration>".encode()
