"""Request heads that botocore signs for the S3 port, and the port's check of them."""

from typing import Any

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as Keys

from hostelry.aws.temporary_keys import TemporaryKeys
from hostelry.base.clock import Clock, SystemClock
from hostelry.home.home import Credentials, UpConfig
from hostelry.principals.caller import Principals
from hostelry.principals.source import FixedPrincipals
from hostelry.principals.table import PolicyRow, PrincipalRow, PrincipalTable, principal_key
from hostelry.s3.head import Head, parse_head, write_head
from hostelry.s3.object_keys import KmsKeys, ObjectKeys
from hostelry.s3.passage import Passage, own_key
from hostelry.s3.permits import ObjectPermits
from hostelry.s3.store_client import StoreClient

NOW = SystemClock().now()  # botocore signs by the machine's clock
CREDENTIALS = Credentials(
    account_id="111122223333",
    region="us-east-1",
    access_key_id="AKIDEXAMPLE",
    secret_access_key="wJalrXUtnFEMI/K7MDENG",
    internal_key="internal-key",
    openai_api_key="sk-x",
)


def passage(clock: Clock) -> Passage:
    """A port's passage without a store and without control."""
    config = UpConfig(control_port=9)
    store = StoreClient("http://127.0.0.1:9", own_key(CREDENTIALS), clock)
    row = PrincipalRow(
        account=CREDENTIALS.account_id,
        name="r",
        id="AROAR",
        arn=f"arn:aws:iam::{CREDENTIALS.account_id}:role/r",
        policies=("all",),
    )
    document = (
        '{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:*","Resource":"*"}}'
    )
    table = PrincipalTable(
        roles={principal_key(CREDENTIALS.account_id, "r"): row},
        policies={"all": PolicyRow(id="all", type="role", document=document)},
    )
    source = FixedPrincipals(Principals(table, CREDENTIALS.account_id))
    permits = ObjectPermits(CREDENTIALS.account_id, source, clock.now)
    keys = ObjectKeys(KmsKeys(config, CREDENTIALS, source, {}), permits, store)
    return Passage(CREDENTIALS, keys, store, clock, source, permits)


def signed(
    method: str, target: str, *, keys: TemporaryKeys | None = None, in_query: bool = False
) -> Head:
    """A head signed with the account's keys, or with temporary keys."""
    own = Keys(CREDENTIALS.access_key_id, CREDENTIALS.secret_access_key)
    if keys is not None:
        own = Keys(keys.access_key_id, keys.secret_access_key, keys.session_token)
    signer: Any = S3SigV4QueryAuth if in_query else S3SigV4Auth
    request = AWSRequest(method, f"http://h:1{target}", data=b"")
    signer(own, "s3", CREDENTIALS.region).add_auth(request)
    prepared = request.prepare()
    sent = {"Host": "h:1", **prepared.headers}
    shown = {name: it.decode() if isinstance(it, bytes) else it for name, it in sent.items()}
    return parse_head(write_head(method, prepared.url.removeprefix("http://h:1"), shown.items()))
