"""Permissions that requests of the S3 port need."""

from collections.abc import Mapping, Sequence

import pytest
from tests.cases import case, cases

from hostelry.permissions.needs.object_actions import UNKNOWN
from hostelry.permissions.needs.object_calls import (
    ObjectRequest,
    deletes_several,
    needed_for_key,
    needed_for_object_call,
)
from hostelry.permissions.needs.object_place import UnclearRequestError

KEY = "arn:aws:kms:us-west-2:111122223333:key/1"
DELETE = (
    b"<Delete><Object><Key>a</Key></Object>"
    b"<Object><Key>b</Key><VersionId>1</VersionId></Object></Delete>"
)
COPY = "x-amz-copy-source"


def build(text: str, headers: Mapping[str, str], body: bytes | None = None) -> ObjectRequest:
    method, _, target = text.partition(" ")
    path, _, query = target.partition("?")
    return ObjectRequest(
        method=method, path=path, query=query, headers=list(headers.items()), body=body
    )


def need(text: str, headers: Mapping[str, str], body: bytes | None = None) -> list[str]:
    """Each need as `Action resource`, without what begins all of them."""
    found = needed_for_object_call(build(text, headers, body))
    texts = [f"{it.action} {it.resource}" for it in found]
    return [it.replace("s3:", "", 1).replace("arn:aws:s3:::", "") for it in texts]


@cases(
    "request_, headers, expected",
    case("buckets", "GET /?x-id=ListBuckets", {}, ["ListAllMyBuckets *"]),
    case("a bucket's objects", "GET /b?list-type=2&prefix=a%2F", {}, ["ListBucket b"]),
    case("a bucket's objects with a slash at the end", "GET /b/", {}, ["ListBucket b"]),
    case("whether a bucket exists", "HEAD /b", {}, ["ListBucket b"]),
    case("versions", "GET /b?versions", {}, ["ListBucketVersions b"]),
    case("uploads", "GET /b?uploads=", {}, ["ListBucketMultipartUploads b"]),
    case("where a bucket is", "GET /b?location", {}, ["GetBucketLocation b"]),
    case("a new bucket", "PUT /b", {}, ["CreateBucket b"]),
    case(
        "a new bucket with an ACL", "PUT /b", {"x-amz-acl": "private"},
        ["CreateBucket b", "PutBucketAcl b"],
    ),
    case("a deleted bucket", "DELETE /b", {}, ["DeleteBucket b"]),
    case("a bucket's policy", "PUT /b?policy", {}, ["PutBucketPolicy b"]),
    case("a bucket's policy deleted", "DELETE /b?policy", {}, ["DeleteBucketPolicy b"]),
    case("a bucket's versioning", "PUT /b?versioning", {}, ["PutBucketVersioning b"]),
    case("a bucket's encryption", "GET /b?encryption", {}, ["GetEncryptionConfiguration b"]),
    case("encryption deleted", "DELETE /b?encryption", {}, ["PutEncryptionConfiguration b"]),
    case("notifications", "PUT /b?notification", {}, ["PutBucketNotification b"]),
    case("tags of a bucket", "GET /b?tagging", {}, ["GetBucketTagging b"]),
    case("an object", "GET /b/a/c%20d", {}, ["GetObject b/a/c d"]),
    case("an object's size", "HEAD /b/k", {}, ["GetObject b/k"]),
    case("a version", "GET /b/k?versionId=1", {}, ["GetObjectVersion b/k"]),
    case("an empty version", "GET /b/k?versionId=", {}, ["GetObject b/k"]),
    case(
        "attributes", "GET /b/k?attributes", {}, ["GetObjectAttributes b/k", "GetObject b/k"]
    ),
    case("an upload", "PUT /b/k?x-id=PutObject", {}, ["PutObject b/k"]),
    case(
        "an upload with tags and an ACL", "PUT /b/k",
        {"x-amz-tagging": "a=b", "X-Amz-Grant-Read": "id=1"},
        ["PutObject b/k", "PutObjectAcl b/k", "PutObjectTagging b/k"],
    ),
    case("a deleted object", "DELETE /b/k", {}, ["DeleteObject b/k"]),
    case("a deleted version", "DELETE /b/k?versionId=1", {}, ["DeleteObjectVersion b/k"]),
    case(
        "a deletion against a retention", "DELETE /b/k",
        {"x-amz-bypass-governance-retention": "true"},
        ["DeleteObject b/k", "BypassGovernanceRetention b/k"],
    ),
    case("tags", "PUT /b/k?tagging", {}, ["PutObjectTagging b/k"]),
    case("tags deleted", "DELETE /b/k?tagging", {}, ["DeleteObjectTagging b/k"]),
    case("an upload in parts", "POST /b/k?uploads", {}, ["PutObject b/k"]),
    case("a part", "PUT /b/k?partNumber=1&uploadId=u", {}, ["PutObject b/k"]),
    case("the parts", "GET /b/k?uploadId=u", {}, ["ListMultipartUploadParts b/k"]),
    case("all parts uploaded", "POST /b/k?uploadId=u", {}, ["PutObject b/k"]),
    case("an upload given up", "DELETE /b/k?uploadId=u", {}, ["AbortMultipartUpload b/k"]),
    case("a copy", "PUT /b/k", {COPY: "/c/x%20y"}, ["PutObject b/k", "GetObject c/x y"]),
    case(
        "a copy of a version", "PUT /b/k", {COPY: "c/x?versionId=7"},
        ["PutObject b/k", "GetObjectVersion c/x"],
    ),
    case(
        "a plus sign in the source of a copy is read in both ways", "PUT /b/k", {COPY: "c/x+y"},
        ["PutObject b/k", "GetObject c/x y", "GetObject c/x+y"],
    ),
    case(
        "a presigned URL", "GET /b/k?X-Amz-Algorithm=A&X-Amz-Credential=C&X-Amz-Date=D"
        "&X-Amz-Expires=1&X-Amz-SignedHeaders=host&X-Amz-Signature=S&response-content-type=t",
        {}, ["GetObject b/k"],
    ),
    case(
        "slashes that the store drops", "GET /b/a//k", {}, ["GetObject b/a//k", "GetObject b/a/k"]
    ),
    case("a slash that begins a key", "GET /b//k", {}, ["GetObject b//k", "GetObject b/k"]),
)  # fmt: skip
def test_a_request_needs(
    request_: str, headers: Mapping[str, str], expected: Sequence[str]
) -> None:
    assert need(request_, headers) == expected


NOT_KNOWN = UNKNOWN.removeprefix("s3:") + " *"


@cases(
    "request_, expected",
    case("an unknown sub-resource", "GET /b/k?secrets", [NOT_KNOWN, "GetObject b/k"]),
    case("a known name in other letters", "PUT /b/k?ACL", [NOT_KNOWN, "PutObject b/k"]),
    case(
        "a sub-resource of another kind", "GET /b/k?policy",
        [NOT_KNOWN, "GetObject b/k", "GetBucketPolicy b"],
    ),
    case("a method without such an operation", "POST /b/k?acl", [NOT_KNOWN, "PutObject b/k"]),
    case(
        "two sub-resources", "PUT /b/k?legal-hold&retention",
        [NOT_KNOWN, "PutObject b/k", "PutObjectLegalHold b/k", "PutObjectRetention b/k"],
    ),
    case("a part that the store ignores", "DELETE /b?website", [NOT_KNOWN, "DeleteBucket b"]),
    case(
        "a field that the store may prefer", "GET /b?location&list-type=2",
        [NOT_KNOWN, "ListBucket b", "GetBucketLocation b"],
    ),
    case(
        "a head of a sub-resource", "HEAD /b/k?tagging",
        [NOT_KNOWN, "GetObject b/k", "GetBucketTagging b", "GetObjectTagging b/k"],
    ),
    case("a field that is given twice", "GET /b?prefix=a&prefix=b", [NOT_KNOWN, "ListBucket b"]),
    case("a semicolon", "GET /b?prefix=a;policy", [NOT_KNOWN, "ListBucket b"]),
    case("an escape that is not UTF-8", "DELETE /b/k?%ff", [NOT_KNOWN, "DeleteObject b/k"]),
    case("a rename without its source", "PUT /b/k?renameObject", [NOT_KNOWN, "PutObject b/k"]),
    case("an unknown method", "PATCH /b/k", [NOT_KNOWN]),
    case("a call of the service", "POST /", [NOT_KNOWN]),
    case("a query of the service", "GET /?Action=CreateUser", [NOT_KNOWN]),
)  # fmt: skip
def test_an_unknown_operation_needs_every_action_and_the_plain_one(
    request_: str, expected: Sequence[str]
) -> None:
    assert need(request_, {}) == expected


@cases(
    "request_, headers",
    case("a step up", "GET /b/../c/k", {}),
    case("a step up that is escaped", "GET /b/%2e%2E/c/k", {}),
    case("a slash that is escaped before a step up", "GET /b/x%2F..%2Fk", {}),
    case("a place that is escaped", "GET /b/./k", {}),
    case("a bucket with an escape", "GET /b%2Fk", {}),
    case("a bucket of dots", "GET /../k", {}),
    case("a wildcard as a bucket", "GET /*/k", {}),
    case("two slashes at the begin", "GET //b/k", {}),
    case("no slash at the begin", "GET http://b/k", {}),
    case("a key of slashes", "PUT /b//", {}),
    case("a backslash", "GET /b/x\\..\\k", {}),
    case("a key that is not UTF-8", "GET /b/%ff", {}),
    case("a form that names the object", "POST /b", {}),
    case("the source of a copy with a step up", "PUT /b/k", {COPY: "c/../d/x"}),
    case("the source of a copy without a key", "PUT /b/k", {COPY: "c"}),
    case("the source of a copy with a query", "PUT /b/k", {COPY: "c/x?acl"}),
    case("an access point as the source of a copy", "PUT /b/k", {COPY: "arn:aws:s3:::c/x"}),
    case("deleted objects without their names", "POST /b?delete", {}),
    case("a renamed object", "PUT /b/k?renameObject", {"x-amz-rename-source": "/b/x"}),
    case("a copy that says to be something else", "PUT /b/k?tagging", {COPY: "/c/x"}),
    case("a copy into no object", "PUT /b", {COPY: "/c/x"}),
)  # fmt: skip
def test_a_request_that_may_be_about_another_object_is_refused(
    request_: str, headers: Mapping[str, str]
) -> None:
    with pytest.raises(UnclearRequestError):
        needed_for_object_call(build(request_, headers))


def test_a_header_that_is_given_twice_is_refused() -> None:
    headers = [(COPY, "c/public"), (COPY.upper(), "c/secret")]
    with pytest.raises(UnclearRequestError):
        needed_for_object_call(ObjectRequest(method="PUT", path="/b/k", headers=headers))


def test_the_body_names_deleted_objects() -> None:
    assert deletes_several("POST", "/b", "delete=")
    assert not deletes_several("POST", "/b/k", "delete=")
    assert need("POST /b?delete", {}, DELETE) == ["DeleteObject b/a", "DeleteObjectVersion b/b"]


@cases(
    "body",
    case("not XML", b"<Delete><Object>"),
    case("a declared type", b"<!DOCTYPE x><Delete><Object><Key>a</Key></Object></Delete>"),
    case("no objects", b"<Delete/>"),
    case("an object without a key", b"<Delete><Object/></Delete>"),
    case("two keys", b"<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>"),
    case("a step up", b"<Delete><Object><Key>a/../b</Key></Object></Delete>"),
    case("another encoding", "<Delete><Object><Key>a</Key></Object></Delete>".encode("utf-16")),
    case("too many", b"<Delete>" + b"<Object><Key>a</Key></Object>" * 1001 + b"</Delete>"),
)
def test_a_body_that_is_not_clear_is_refused(body: bytes) -> None:
    with pytest.raises(UnclearRequestError):
        needed_for_object_call(build("POST /b?delete", {}, body))


def test_the_keys_of_a_list() -> None:
    (found,) = needed_for_object_call(
        build(
            "GET /b?list-type=2&prefix=home%2Fann&delimiter=%2F&max-keys=10", {"Authorization": "x"}
        )
    )
    assert found.context == {
        "s3:authtype": ("REST-HEADER",),
        "s3:prefix": ("home/ann",),
        "s3:delimiter": ("/",),
        "s3:max-keys": ("10",),
    }


def test_the_keys_of_an_upload_and_its_encryption() -> None:
    request = build(
        "POST /b/k?uploads", {"x-amz-server-side-encryption": "aws:kms", "x-amz-tagging": "a=1"}
    )
    found = needed_for_object_call(request) + needed_for_key(
        ("GenerateDataKey", "Decrypt"), KEY, "arn:aws:s3:::b/k"
    )
    assert [(it.action, it.resource) for it in found] == [
        ("s3:PutObject", "arn:aws:s3:::b/k"),
        ("s3:PutObjectTagging", "arn:aws:s3:::b/k"),
        ("kms:GenerateDataKey", KEY),
        ("kms:Decrypt", KEY),
    ]
    assert found[0].context["s3:x-amz-server-side-encryption"] == ("aws:kms",)
    assert found[0].context["s3:requestobjecttag/a"] == ("1",)
    assert found[2].context["kms:viaservice"] == ("s3.us-west-2.amazonaws.com",)
