"""A transform job with the SageMaker Python SDK v2's own Transformer, which waits and prints logs.

Arguments: the name of a model, and rows as JSON. Run under `hostelry exec`.
"""

import json
import sys
import uuid

import boto3
from sagemaker import Session
from sagemaker.transformer import Transformer

model_name, text = sys.argv[1:]
session, unique_id, rows = Session(), uuid.uuid4().hex[:8], json.loads(text)
bucket, folder = session.default_bucket(), f"transform-{unique_id}"
s3 = boto3.client("s3")
for name, part in (("a.csv", rows), ("sub/b.csv", rows[::-1])):
    lines = "".join(",".join(map(str, row)) + "\n" for row in part)
    s3.put_object(Bucket=bucket, Key=f"{folder}/in/{name}", Body=lines.encode())

transformer = Transformer(
    model_name=model_name,
    instance_count=1,
    instance_type="ml.m5.large",
    strategy="MultiRecord",
    assemble_with="Line",
    accept="text/csv",
    output_path=f"s3://{bucket}/{folder}/out",
    max_payload=1,
    max_concurrent_transforms=2,
    env={"ITS_OWN": "1"},
    tags=[{"Key": "team", "Value": "a"}],
    sagemaker_session=session,
)
transformer.transform(
    f"s3://{bucket}/{folder}/in",
    content_type="text/csv",
    split_type="Line",
    job_name=f"job-{unique_id}",
    wait=True,
    logs=True,
)
attached = Transformer.attach(f"job-{unique_id}", sagemaker_session=session)
outputs = {
    name: s3.get_object(Bucket=bucket, Key=f"{folder}/out/{name}.out")["Body"].read().decode()
    for name in ("a.csv", "sub/b.csv")
}
found = session.sagemaker_client.describe_transform_job(TransformJobName=f"job-{unique_id}")
print()  # in case the SDK's log has not ended its line
print(
    json.dumps(
        {
            "status": found["TransformJobStatus"],
            "outputs": outputs,
            "attached": [attached.model_name, attached.accept, attached.assemble_with],
        }
    )
)
