"""The actions of S3 by method and sub-resource, and the query fields and headers that matter.

Source: S3's "Required permissions for S3 API operations", and the Service Authorization Reference.
"""

from collections.abc import Mapping

UNKNOWN = "s3:UnknownOperation"
"""No action of S3: only a statement for all actions on all resources allows it."""
SERVICE_ARN = "arn:aws:s3:::*"

METHODS = ("GET", "PUT", "DELETE", "POST")
LIST_BUCKETS, DELETE_SEVERAL = "ListAllMyBuckets", "DeleteObjects"
# The actions of sub-resources by method. "" is an unknown operation: the object store (SeaweedFS
# 4.48) ignores the sub-resources of such requests, and acts as without them.
_OF_BUCKET: Mapping[str, tuple[str, str, str]] = {
    "accelerate": ("GetAccelerateConfiguration", "", ""),
    "acl": ("GetBucketAcl", "PutBucketAcl", ""),
    "analytics": ("GetAnalyticsConfiguration", "", ""),
    "cors": ("GetBucketCORS", "PutBucketCORS", "PutBucketCORS"),
    "encryption": ("GetEncryptionConfiguration",) + ("PutEncryptionConfiguration",) * 2,
    "intelligent-tiering": ("GetIntelligentTieringConfiguration", "", ""),
    "inventory": ("GetInventoryConfiguration", "", ""),
    "lifecycle": ("GetLifecycleConfiguration",) + ("PutLifecycleConfiguration",) * 2,
    "location": ("GetBucketLocation", "", ""),
    "logging": ("GetBucketLogging", "", ""),
    "metrics": ("GetMetricsConfiguration", "", ""),
    "notification": ("GetBucketNotification", "PutBucketNotification", ""),
    "object-lock": (
        "GetBucketObjectLockConfiguration", "PutBucketObjectLockConfiguration", "",
    ),
    "ownershipControls": ("GetBucketOwnershipControls",) + ("PutBucketOwnershipControls",) * 2,
    "policy": ("GetBucketPolicy", "PutBucketPolicy", "DeleteBucketPolicy"),
    "policyStatus": ("GetBucketPolicyStatus", "", ""),
    "publicAccessBlock": ("GetBucketPublicAccessBlock",) + ("PutBucketPublicAccessBlock",) * 2,
    "replication": ("GetReplicationConfiguration", "", ""),
    "requestPayment": ("GetBucketRequestPayment", "PutBucketRequestPayment", ""),
    "tagging": ("GetBucketTagging", "PutBucketTagging", "PutBucketTagging"),
    "uploads": ("ListBucketMultipartUploads", "", ""),
    "versioning": ("GetBucketVersioning", "PutBucketVersioning", ""),
    "versions": ("ListBucketVersions", "", ""),
    "website": ("GetBucketWebsite", "", ""),
}  # fmt: skip
BUCKET_PARTS: Mapping[str, tuple[str, str, str, str]] = {
    **{name: (*actions, "") for name, actions in _OF_BUCKET.items()},
    "delete": ("", "", "", DELETE_SEVERAL),
}
NO_PARTS: Mapping[str, tuple[str, str, str, str]] = {}
SERVICE_ITSELF = (LIST_BUCKETS, "", "", "")
BUCKET_ITSELF = ("ListBucket", "CreateBucket", "DeleteBucket", "")
OBJECT_PARTS: Mapping[str, tuple[str, str, str, str]] = {
    "acl": ("GetObjectAcl", "PutObjectAcl", "", ""),
    "attributes": ("GetObjectAttributes", "", "", ""),
    "legal-hold": ("GetObjectLegalHold", "PutObjectLegalHold", "", ""),
    "retention": ("GetObjectRetention", "PutObjectRetention", "", ""),
    "select": ("", "", "", "GetObject"),
    "tagging": ("GetObjectTagging", "PutObjectTagging", "DeleteObjectTagging", ""),
    "uploadId": ("ListMultipartUploadParts", "PutObject", "AbortMultipartUpload", "PutObject"),
    "uploads": ("", "", "", "PutObject"),
}
OBJECT_ITSELF = ("GetObject", "PutObject", "DeleteObject", "")
ALSO: Mapping[str, tuple[str, ...]] = {
    "GetObjectAttributes": ("GetObject",),
    "GetObjectVersionAttributes": ("GetObjectVersion",),
}
"""Further actions that an action needs on the same object."""
OF_VERSION: Mapping[str, str] = {
    "GetObject": "GetObjectVersion",
    "GetObjectAcl": "GetObjectVersionAcl",
    "GetObjectAttributes": "GetObjectVersionAttributes",
    "GetObjectTagging": "GetObjectVersionTagging",
    "PutObjectAcl": "PutObjectVersionAcl",
    "PutObjectTagging": "PutObjectVersionTagging",
    "DeleteObject": "DeleteObjectVersion",
    "DeleteObjectTagging": "DeleteObjectVersionTagging",
}
# The fields of a query that choose no operation. Credentials are in any case, others are not.
CREDENTIALS = frozenset(
    {
        "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires",
        "x-amz-signedheaders", "x-amz-signature", "x-amz-security-token", "x-amz-content-sha256",
        "awsaccesskeyid", "signature", "expires", "x-amz-user-agent",
    }
)  # fmt: skip
SERVICE_FIELDS = frozenset({"prefix", "max-buckets", "continuation-token", "bucket-region"})
_PAGES = frozenset(
    {
        "prefix", "delimiter", "max-keys", "key-marker", "version-id-marker", "upload-id-marker",
        "max-uploads", "encoding-type",
    }
)  # fmt: skip
LIST_FIELDS = _PAGES | {
    "list-type", "marker", "start-after", "continuation-token", "fetch-owner", "allow-unordered",
}  # fmt: skip
OBJECT_FIELDS = frozenset({"versionId", "partNumber"})
# The fields next to a sub-resource. The store might prefer another field to the sub-resource.
PART_FIELDS: Mapping[str, frozenset[str]] = {
    "versions": _PAGES,
    "uploads": _PAGES,
    "uploadId": frozenset({"partNumber", "part-number-marker", "max-parts"}),
    "select": frozenset({"select-type"}),
    **dict.fromkeys(
        ("analytics", "intelligent-tiering", "inventory", "metrics"), frozenset({"id"})
    ),
}
VERSIONED_PARTS = frozenset({"acl", "attributes", "legal-hold", "retention", "tagging"})
NEUTRAL_PREFIXES = ("response-", "x-amz-checksum-", "x-amz-sdk-checksum-algorithm")
LISTS = frozenset({"ListBucket", "ListBucketVersions", "ListBucketMultipartUploads"})
# Headers of writes that need another action on the same resource.
HEADER_ACTIONS: Mapping[str, Mapping[str, str]] = {
    "PutObject": {
        "x-amz-acl": "PutObjectAcl",
        "x-amz-grant-": "PutObjectAcl",
        "x-amz-tagging": "PutObjectTagging",
        "x-amz-object-lock-mode": "PutObjectRetention",
        "x-amz-object-lock-retain-until-date": "PutObjectRetention",
        "x-amz-object-lock-legal-hold": "PutObjectLegalHold",
    },
    "CreateBucket": {
        "x-amz-acl": "PutBucketAcl",
        "x-amz-grant-": "PutBucketAcl",
        "x-amz-bucket-object-lock-enabled": "PutBucketObjectLockConfiguration",
        "x-amz-object-ownership": "PutBucketOwnershipControls",
    },
    "PutObjectRetention": {"x-amz-bypass-governance-retention": "BypassGovernanceRetention"},
    "DeleteObject": {"x-amz-bypass-governance-retention": "BypassGovernanceRetention"},
    "DeleteObjectVersion": {"x-amz-bypass-governance-retention": "BypassGovernanceRetention"},
}
KEY_HEADERS = frozenset(
    {
        "x-amz-acl", "x-amz-copy-source", "x-amz-metadata-directive", "x-amz-object-ownership",
        "x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id",
        "x-amz-server-side-encryption-customer-algorithm", "x-amz-storage-class",
        "x-amz-website-redirect-location", "x-amz-grant-read", "x-amz-grant-write",
        "x-amz-grant-read-acp", "x-amz-grant-write-acp", "x-amz-grant-full-control",
        "x-amz-content-sha256",
    }
)  # fmt: skip
