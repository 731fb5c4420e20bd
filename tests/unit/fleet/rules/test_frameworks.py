"""AWS's framework images by their names, and on whose word their models' code runs."""

import pytest

from hostelry.fleet.rules.frameworks import framework_runtime, why_not_trusted
from hostelry.fleet.rules.images import ImageRules, repository_of, tag_of

REGISTRY = "683313688378.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("image", "found"),
    [
        pytest.param(f"{REGISTRY}/sagemaker-scikit-learn:1.2-1-cpu-py3", ("sklearn", "sklearn-1.2"),
                     id="AWS's"),
        pytest.param("121021644041.dkr.ecr.cn-north-1.amazonaws.com.cn/sagemaker-scikit-learn:"
                     "0.23-1-cpu-py3", ("sklearn", "sklearn-0.23"), id="of another region"),
        pytest.param("sagemaker-scikit-learn:1.4-2", ("sklearn", "sklearn-1.4"), id="a bare name"),
        pytest.param(f"{REGISTRY}/sagemaker-scikit-learn:9.9-1-cpu-py3", ("sklearn", "sklearn-9.9"),
                     id="a version that is not known"),
        pytest.param(f"{REGISTRY}/sagemaker-scikit-learn@sha256:0", None, id="no tag"),
        pytest.param(f"{REGISTRY}/sagemaker-scikit-learn:latest", None, id="no version"),
        pytest.param(f"{REGISTRY}/my-sagemaker-scikit-learn:1.2", None, id="a longer name"),
        pytest.param(f"{REGISTRY}/sagemaker-scikit-learn-x:1.2", None, id="another"),
    ],
)  # fmt: skip
def test_images(image: str, found: tuple[str, str] | None) -> None:
    assert framework_runtime(repository_of(image), tag_of(image)) == found
    rule = ImageRules().resolve(image)
    assert (None if rule is None else rule.argv[-4:]) == (
        None if found is None else ("--framework", found[0], "--runtime", found[1])
    )


@pytest.mark.parametrize(
    ("operator", "has_own_user", "runs"),
    [
        pytest.param({}, True, True, id="as a user of its own"),
        pytest.param({"HOSTELRY_CUSTOM_CODE": "trusted"}, False, True, id="on the operator's word"),
        pytest.param({"HOSTELRY_CUSTOM_CODE": "confined"}, False, False, id="which is not this"),
        pytest.param({}, False, False, id="neither"),
    ],
)
def test_code_runs(operator: dict[str, str], has_own_user: bool, runs: bool) -> None:
    assert (why_not_trusted(operator, has_own_user=has_own_user) is None) == runs
