"""URIs of framework images by the SageMaker Python SDK v2, as rows of framework, version, URI.

Argument: regions separated by commas. The program asks for each version in the first region, and
for the last versions with each processor.
"""

import functools
import json
import logging
import sys

from sagemaker import image_uris, utils

logging.disable(logging.CRITICAL)
# The SDK reads botocore's endpoints at each call, which would take most of the time.
utils._botocore_resolver = functools.cache(utils._botocore_resolver)
FRAMEWORKS = ("sklearn", "xgboost", "pytorch", "tensorflow", "huggingface", "autogluon")
INSTANCES = ("ml.m5.large", "ml.g5.xlarge", "ml.c7g.xlarge")
found: set[tuple[str, str, str]] = set()


def add(framework: str, version: str, place: tuple[str, str], **more: str) -> None:
    """Add the URI, if the SDK has a URI for these arguments."""
    region, instance_type = place
    try:
        uri = image_uris.retrieve(
            framework,
            region,
            version=version,
            instance_type=instance_type,
            image_scope="inference",
            **more,
        )
    except ValueError:
        return
    found.add((framework, version, uri))


home, *others = sys.argv[1].split(",")
for framework in FRAMEWORKS:
    config = image_uris.config_for_framework(framework)
    config = config.get("inference", config)
    last = list(config["versions"])[-4:]
    for version, each in config["versions"].items():
        for instance_type in INSTANCES if version in last else INSTANCES[:1]:
            for base in [it for it in each if it.startswith(("pytorch", "tensorflow"))]:
                add(framework, version, (home, instance_type), base_framework_version=base)
            if framework != "huggingface":
                add(framework, version, (home, instance_type))
for region in others:
    add("xgboost", "1.7-1", (region, INSTANCES[0]))
    add("pytorch", "2.6.0", (region, INSTANCES[0]))
print(json.dumps(sorted(found)))
