"""Caller and execution role: the first lines of most AWS notebooks."""

import boto3

session = boto3.session.Session()
account = session.client("sts").get_caller_identity()["Account"]
caller = session.client("sts").get_caller_identity()["Arn"]
role_name = caller.split("/")[-2]
role = session.client("iam").get_role(RoleName=role_name)["Role"]["Arn"]
assert role == f"arn:aws:iam::{account}:role/{role_name}", role
print(f"{role} in {session.region_name}")
