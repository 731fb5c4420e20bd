"""The JumpStart catalogue of the embedded object store: where AWS has it, with no model to use.

The SageMaker SDK v3 reads it for every model that a program names by a text; it takes only a
catalogue of at least one model for the answer that the text is no JumpStart model.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.server.home import Credentials
from hostelry.server.readiness import client

# The SDK shows this name beside "Did you mean", and refuses it: its version is below every SDK's.
NO_MODEL: Mapping[str, str] = {
    "model_id": "hostelry-has-no-jumpstart-models",
    "version": "1.0.0",
    "min_version": "9999.0.0",
    "spec_key": "hostelry/none.json",
}
CATALOGUES = ("models_manifest.json", "proprietary-sdk-manifest.json")

log = logging.getLogger(__name__)


def catalogue_bucket(region: str) -> str:
    """The bucket that AWS's programs read in a region."""
    return f"jumpstart-cache-prod-{region}"


def stock_catalogues(url: str, credentials: Credentials) -> None:
    """Put each catalogue that is not there; an operator's own, a mirror of AWS's, stays.

    Without them only programs fail that ask for them, so an error is logged and no more.
    """
    s3, bucket = client("s3", url, credentials), catalogue_bucket(credentials.region)
    try:
        missing = [key for key in CATALOGUES if not is_there(s3.head_object, bucket, Key=key)]
        if missing and not is_there(s3.head_bucket, bucket):
            s3.create_bucket(Bucket=bucket, **place(credentials.region))
        for key in missing:
            s3.put_object(Bucket=bucket, Key=key, Body=json.dumps([NO_MODEL]).encode())
    except (ClientError, BotoCoreError) as error:
        log.warning("the JumpStart catalogue cannot be written: %s", error)
    finally:
        s3.close()


def is_there(head: Callable[..., Any], bucket: str, **given: str) -> bool:
    """Whether a bucket or object exists; raises ClientError for all but a missing one."""
    try:
        head(Bucket=bucket, **given)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
            raise
        return False
    return True


def place(region: str) -> dict[str, Any]:
    """CreateBucket's argument for a region: us-east-1 has none."""
    if region == "us-east-1":
        return {}
    return {"CreateBucketConfiguration": {"LocationConstraint": region}}
