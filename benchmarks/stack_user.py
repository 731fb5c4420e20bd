"""A user of a measured gateway, whose policy decides each of the user's calls."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace

import msgspec
from msgspec.structs import replace as with_fields

from benchmarks.stack import Stack, running_stack
from hostelry.aws.access_keys import AccessKeySecrets
from hostelry.base.files import write_whole
from hostelry.base.ids import new_access_key_id
from hostelry.home.home import Credentials, Home
from hostelry.principals.table import (
    KeyRow,
    PolicyRow,
    PrincipalRow,
    PrincipalTable,
    principal_key,
    stamp_version,
)

NAME = "caller"
STATEMENTS = [
    {"Effect": "Allow", "Action": "sagemaker:InvokeEndpoint*", "Resource": "*"},
    {
        "Effect": "Deny",
        "Action": "sagemaker:*",
        "Resource": "arn:aws:sagemaker:*:*:endpoint/secret-*",
    },
]


def publish_user(home: Home, credentials: Credentials) -> str:
    """Write a user with a policy to disk, as an earlier gateway does. Returns the access key id."""
    account, key_id = credentials.account_id, new_access_key_id(credentials.account_id)
    user = principal_key(account, NAME)
    table = PrincipalTable(
        users={
            user: PrincipalRow(
                account=account,
                name=NAME,
                id="AIDABENCHMARK",
                arn=f"arn:aws:iam::{account}:user/{NAME}",
                policies=("calls",),
            )
        },
        access_keys={key_id: KeyRow(account=account, user=user)},
        policies={
            "calls": PolicyRow(
                id="calls",
                type="user",
                document=json.dumps({"Version": "2012-10-17", "Statement": STATEMENTS}),
            )
        },
    )
    write_whole(home.principals, msgspec.json.encode(stamp_version(table)))
    return key_id


@contextlib.contextmanager
def running_user_stack() -> Iterator[Stack]:
    """A stack whose credentials are the user's keys."""
    key_ids: list[str] = []
    with running_stack(1, prepare=lambda *at: key_ids.append(publish_user(*at))) as stack:
        secret = AccessKeySecrets(stack.credentials.internal_key).derive(key_ids[0])
        keys = with_fields(stack.credentials, access_key_id=key_ids[0], secret_access_key=secret)
        yield replace(stack, credentials=keys)
