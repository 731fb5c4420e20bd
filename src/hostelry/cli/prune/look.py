"""Look of `hostelry prune`: uploads in the object store, models that `deploy` has made."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hostelry.cli.declared.upload import BUCKET as APPLIED
from hostelry.cli.deploy.calls import DEPLOYED_TAG
from hostelry.cli.named import rows_of
from hostelry.cli.prune.plan import DeployedModel, StoredUpload, UploadObject, grouped

MAX_AT_ONCE = 1000  # objects, of DeleteObjects


def found_uploads(s3: Any, own_bucket: str) -> list[StoredUpload]:
    """The uploads of `deploy`, `adapters add` and `apply`."""
    found = []
    for bucket in (own_bucket, APPLIED):
        if has_bucket(s3, bucket):
            objects = [*_objects(s3, bucket), *_parts(s3, bucket)]
            found += grouped(bucket, objects, applied=bucket == APPLIED)
    return found


def found_models(sagemaker: Any, uses: Mapping[str, Sequence[str]]) -> list[DeployedModel]:
    """The models that `deploy` has made, with the records that use each."""
    found = []
    for row in rows_of(sagemaker, "list_models", "Models"):
        tags = rows_of(sagemaker, "list_tags", "Tags", ResourceArn=row["ModelArn"])
        name = next((it["Value"] for it in tags if it["Key"] == DEPLOYED_TAG), None)
        if name is not None:
            model = row["ModelName"]
            users = tuple(it for it in uses.get(model, ()) if it != f"model {model}")
            created_at = row["CreationTime"].timestamp()
            found.append(DeployedModel(model=model, name=name, created_at=created_at, users=users))
    return found


def remove_upload(s3: Any, upload: StoredUpload) -> None:
    """Remove the objects of an upload, and parts of objects whose upload has not ended."""
    for one in upload.objects:
        if one.upload_id:
            s3.abort_multipart_upload(Bucket=upload.bucket, Key=one.key, UploadId=one.upload_id)
    keys = [it.key for it in upload.objects if not it.upload_id]
    for first in range(0, len(keys), MAX_AT_ONCE):
        chosen = [{"Key": it} for it in keys[first : first + MAX_AT_ONCE]]
        s3.delete_objects(Bucket=upload.bucket, Delete={"Objects": chosen, "Quiet": True})


def has_bucket(s3: Any, bucket: str) -> bool:
    """Whether there is such a bucket."""
    from botocore.exceptions import ClientError

    try:
        s3.head_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404:
            return False
        raise
    return True


def _objects(s3: Any, bucket: str) -> Iterator[UploadObject]:
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for row in page.get("Contents", ()):
            yield UploadObject(
                key=row["Key"], num_bytes=row["Size"], modified_at=row["LastModified"].timestamp()
            )


def _parts(s3: Any, bucket: str) -> Iterator[UploadObject]:
    for page in s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
        for row in page.get("Uploads", ()):
            where = {"Bucket": bucket, "Key": row["Key"], "UploadId": row["UploadId"]}
            pages = s3.get_paginator("list_parts").paginate(**where)
            sizes = (part["Size"] for one in pages for part in one.get("Parts", ()))
            yield UploadObject(
                key=row["Key"],
                num_bytes=sum(sizes),
                modified_at=row["Initiated"].timestamp(),
                upload_id=row["UploadId"],
            )
