"""Bring your own container: the repository's name, and an instance type with enough memory."""

import boto3

session = boto3.session.Session()
region = session.region_name
account = session.client("sts").get_caller_identity()["Account"]
ecr, ec2 = session.client("ecr"), session.client("ec2")
name = "sagemaker-byoc"

try:
    repository = ecr.describe_repositories(repositoryNames=[name])["repositories"][0]
except ecr.exceptions.RepositoryNotFoundException:
    repository = ecr.create_repository(repositoryName=name)["repository"]
assert repository["repositoryUri"] == f"{account}.dkr.ecr.{region}.amazonaws.com/{name}"
assert not ecr.describe_images(repositoryName=name)["imageDetails"]

candidates = ["g5.xlarge", "g5.12xlarge", "m5.xlarge"]
gpus = {}
pages = ec2.get_paginator("describe_instance_types").paginate(InstanceTypes=candidates)
for page in pages:
    for found in page["InstanceTypes"]:
        info = found.get("GpuInfo", {"Gpus": []})
        gpus[found["InstanceType"]] = sum(gpu["Count"] for gpu in info["Gpus"])
assert gpus == {"g5.xlarge": 1, "g5.12xlarge": 4, "m5.xlarge": 0}, gpus
zones = ec2.describe_availability_zones()["AvailabilityZones"]
assert all(zone["ZoneName"].startswith(region) for zone in zones)

ecr.delete_repository(repositoryName=name, force=True)
print(f"{repository['repositoryUri']} would need one of {sorted(gpus)}")
