"""AWS's prebuilt framework images, by their names: framework and runtime. Pure.

Registry, region and account do not count. The runtime is named by the first two numbers of the
tag's version: 1.2-1-cpu-py3 is served by sklearn:1.2. An image for GPUs has the same runtime,
which is made for what the machine has.

Source: SageMaker's registry paths of prebuilt images, and the SDK's image_uris.
"""

import re
from collections.abc import Mapping

from hostelry.runtimes.recipes import known_versions, runtime_folder

REPOSITORIES: Mapping[str, str] = {
    "sagemaker-scikit-learn": "sklearn",
    "sagemaker-xgboost": "xgboost",
    "pytorch-inference": "pytorch",
    "pytorch-inference-graviton": "pytorch",
    "tensorflow-inference": "tensorflow",
    "tensorflow-inference-graviton": "tensorflow",
    "huggingface-pytorch-inference": "huggingface",
    "autogluon-inference": "autogluon",
}
# The image's own version, that of transformers, then what it was built for and when.
TAG = re.compile(
    r"(?P<own>[0-9]+\.[0-9]+)([.-][0-9]+)*(-transformers(?P<transformers>[0-9]+\.[0-9]+)[0-9.]*)?"
    r"(-(cpu|gpu|arm64|ec2|sagemaker|soci|py[0-9]+|cu[0-9]+|ubuntu[0-9.]+|v?[0-9][0-9.]*))*"
)
CUSTOM_CODE = "HOSTELRY_CUSTOM_CODE"
TRUSTED = "trusted"


def framework_runtime(repository: str, tag: str) -> tuple[str, str] | None:
    """The framework and the runtime's folder of an image; None for other images."""
    framework = REPOSITORIES.get(repository.rpartition("/")[2])
    found = TAG.fullmatch(tag)
    if framework is None or found is None:
        return None
    version = found["transformers"] if framework == "huggingface" else found["own"]
    return None if version is None else (framework, runtime_folder(framework, version))


def why_no_runtime(runtime: str) -> str | None:
    """Why a framework's runtime cannot be made, by its folder; None where it can."""
    framework, _, version = runtime.partition("-")
    known = known_versions(framework)
    if version in known:
        return None
    return (
        f"No runtime can be made for {framework}:{version}; of {framework} there are "
        f"{', '.join(known)}. Use an image of one of these versions, or let images.toml say what "
        "runs this one."
    )


def why_not_trusted(operator: Mapping[str, str], *, no_own_user: str | None) -> str | None:
    """Why a framework's model is not run here; None where it is.

    Its files are pickles and its functions are code: they get a user of their own, or the
    operator's word. `no_own_user` is why copies have none, with the remedy; None if they have.
    """
    if no_own_user is None or operator.get(CUSTOM_CODE) == TRUSTED:
        return None
    return (
        f"The model is code (pickles, inference.py), and {no_own_user}. Then start `hostelry up` "
        f"again, or set {CUSTOM_CODE}={TRUSTED} for it if every model's author is trusted."
    )
