"""Keys for the holder of a token of an OpenID Connect provider, which runs in this program."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from joserfc import jwt
from joserfc.jwk import RSAKey

KEY = RSAKey.generate_key(2048, {"kid": "one"})
name = "WebRole"


class Provider(BaseHTTPRequestHandler):
    """A provider's configuration and keys."""

    def do_GET(self) -> None:
        """Answer with the document of the path."""
        documents = {
            "/.well-known/openid-configuration": {"issuer": issuer, "jwks_uri": f"{issuer}/jwks"},
            "/jwks": {"keys": [KEY.as_dict(private=False)]},
        }
        body = json.dumps(documents[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
threading.Thread(target=server.serve_forever, daemon=True).start()
issuer = f"http://127.0.0.1:{server.server_port}"

iam = boto3.client("iam")
provider = iam.create_open_id_connect_provider(Url=issuer, ClientIDList=["app"])
arn = provider["OpenIDConnectProviderArn"]
trust = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Federated": arn},
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {"StringEquals": {f"{issuer.partition('://')[2]}:sub": "job-7"}},
        }
    ],
}
role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))["Role"]
iam.attach_role_policy(RoleName=name, PolicyArn="arn:aws:iam::aws:policy/AmazonSageMakerReadOnly")
sts = boto3.client("sts", config=Config(signature_version=UNSIGNED))


def build_token(subject: str) -> str:
    """A token of the provider for a subject."""
    now = int(time.time())
    claims = {"iss": issuer, "aud": "app", "sub": subject, "iat": now, "exp": now + 60}
    return jwt.encode({"alg": "RS256", "kid": "one"}, claims, KEY)


given = {"RoleArn": role["Arn"], "RoleSessionName": "ci"}
answer = sts.assume_role_with_web_identity(**given, WebIdentityToken=build_token("job-7"))
assert answer["SubjectFromWebIdentityToken"] == "job-7"
keys = answer["Credentials"]
session = boto3.Session(
    aws_access_key_id=keys["AccessKeyId"],
    aws_secret_access_key=keys["SecretAccessKey"],
    aws_session_token=keys["SessionToken"],
)
caller = session.client("sts").get_caller_identity()["Arn"]
assert caller.endswith(f":assumed-role/{name}/ci"), caller
session.client("sagemaker").list_endpoints()
try:
    sts.assume_role_with_web_identity(**given, WebIdentityToken=build_token("job-8"))
    code = "an answer"
except ClientError as error:
    code = error.response["Error"]["Code"]
assert code == "AccessDenied", code
iam.detach_role_policy(RoleName=name, PolicyArn="arn:aws:iam::aws:policy/AmazonSageMakerReadOnly")
iam.delete_role(RoleName=name)
iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=arn)
print(f"{caller} by a token of {issuer}")
