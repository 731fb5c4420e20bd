"""AWS's prebuilt framework images, by their names: framework and runtime. Pure.

Registry, region and account do not count. The runtime is named by the first two numbers of the
tag's version: 1.2-1-cpu-py3 is served by sklearn:1.2.

Source: SageMaker's registry paths of prebuilt images, and the SDK's image_uris.
"""

import re
from collections.abc import Mapping

from hostelry.runtimes.recipes import runtime_folder

REPOSITORIES: Mapping[str, str] = {"sagemaker-scikit-learn": "sklearn"}
TAG_VERSION = re.compile(r"([0-9]+\.[0-9]+)([.-][0-9]+)*(-cpu)?(-py3)?")
CUSTOM_CODE = "HOSTELRY_CUSTOM_CODE"
TRUSTED = "trusted"


def framework_runtime(repository: str, tag: str) -> tuple[str, str] | None:
    """The framework and the runtime's folder of an image; None for other images."""
    framework = REPOSITORIES.get(repository.rpartition("/")[2])
    version = TAG_VERSION.fullmatch(tag)
    if framework is None or version is None:
        return None
    return framework, runtime_folder(framework, version[1])


def why_not_trusted(operator: Mapping[str, str], *, has_own_user: bool) -> str | None:
    """Why a framework's model is not run here; None where it is.

    Its files are pickles and its functions are code: they get a user of their own, or the
    operator's word.
    """
    if has_own_user or operator.get(CUSTOM_CODE) == TRUSTED:
        return None
    return (
        "The model is code (pickles, inference.py), which would run as the platform's own user "
        f"here. Give copies users of their own (hostelry up as root), or set {CUSTOM_CODE}="
        f"{TRUSTED} for `hostelry up` if every model's author is trusted."
    )
