"""AWS's framework images by their names, and on whose word their models' code runs."""

from pathlib import Path

import pytest

from hostelry.fleet.rules.frameworks import (
    algorithm_note,
    framework_image,
    why_no_runtime,
    why_not_trusted,
)
from hostelry.fleet.rules.images import (
    ImageRules,
    framework_rule,
    registry_of,
    repository_of,
    tag_of,
    unknown_image,
)

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
        pytest.param(f"{REGISTRY}/sagemaker-xgboost:1.7-1", ("xgboost", "xgboost-1.7"),
                     id="XGBoost's"),
        pytest.param("811284229777.dkr.ecr.us-east-1.amazonaws.com/xgboost:latest",
                     ("xgboost", "xgboost-0.90"), id="the first XGBoost's"),
        pytest.param("111122223333.dkr.ecr.us-east-1.amazonaws.com/xgboost:latest", None,
                     id="one's own of that name"),
        pytest.param(f"{REGISTRY}/sagemaker-scikit-learn:0.20.0-cpu-py3",
                     ("sklearn", "sklearn-0.20"), id="an old scikit-learn's"),
        pytest.param(f"{REGISTRY}/pytorch-inference:1.8.1-cpu-py36", ("pytorch", "pytorch-1.8"),
                     id="an old PyTorch's"),
        pytest.param(f"{REGISTRY}/pytorch-inference:1.6.0-cpu-py36", ("pytorch", "pytorch-1.8"),
                     id="a version without a runtime, by the next later one"),
        pytest.param(f"{REGISTRY}/tensorflow-inference:1.15.5-cpu",
                     ("tensorflow", "tensorflow-2.3"), id="so with TensorFlow 1"),
        pytest.param(f"{REGISTRY}/sagemaker-xgboost:1.5-1-arm64", ("xgboost", "xgboost-1.5"),
                     id="for another processor"),
        pytest.param(f"{REGISTRY}/pytorch-inference:2.6.0-gpu-py312-cu124-ubuntu22.04-sagemaker",
                     ("pytorch", "pytorch-2.6"), id="PyTorch's for GPUs"),
        pytest.param(f"{REGISTRY}/pytorch-inference-graviton:2.1-cpu-py310-ubuntu20.04-sagemaker",
                     ("pytorch", "pytorch-2.1"), id="for Graviton"),
        pytest.param(f"{REGISTRY}/tensorflow-inference:2.19.0-cpu",
                     ("tensorflow", "tensorflow-2.19"), id="TensorFlow's"),
        pytest.param(f"{REGISTRY}/huggingface-pytorch-inference:2.6.0-transformers4.49.0-cpu-py312-"
                     "ubuntu22.04", ("huggingface", "huggingface-4.49"),
                     id="Hugging Face's, by the version of transformers"),
        pytest.param(f"{REGISTRY}/huggingface-pytorch-inference:2.6.0-cpu", None,
                     id="without a version of transformers"),
        pytest.param(f"{REGISTRY}/huggingface-tensorflow-inference:2.11.0-transformers4.26.0-cpu",
                     None, id="Hugging Face's on TensorFlow"),
        pytest.param(f"{REGISTRY}/autogluon-inference:1.3.0-cpu-py311",
                     ("autogluon", "autogluon-1.3"), id="AutoGluon's"),
        pytest.param(f"{REGISTRY}/pytorch-inference:2.6.0-cpu-py312-ours", None, id="one's own"),
        pytest.param(f"{REGISTRY}/sagemaker-scikit-learn@sha256:0", None, id="no tag"),
        pytest.param(f"{REGISTRY}/sagemaker-scikit-learn:latest", None, id="no version"),
        pytest.param(f"{REGISTRY}/my-sagemaker-scikit-learn:1.2", None, id="a longer name"),
        pytest.param(f"{REGISTRY}/sagemaker-scikit-learn-x:1.2", None, id="another"),
    ],
)  # fmt: skip
def test_images(image: str, found: tuple[str, str] | None) -> None:
    served = framework_image(repository_of(image), tag_of(image), registry_of(image))
    assert (None if served is None else (served.framework, served.runtime)) == found
    rule = ImageRules().resolve(image)
    assert (None if rule is None else rule.argv[-4:]) == (
        None if found is None else ("--framework", found[0], "--runtime", found[1])
    )


@pytest.mark.parametrize(
    ("image", "note"),
    [
        pytest.param(f"{REGISTRY}/pytorch-inference:1.8.1-cpu-py36", "", id="its own version"),
        pytest.param(f"{REGISTRY}/pytorch-inference:1.6.0-cpu-py36",
                     "The image is of pytorch 1.6, for which there is no runtime: it is served by "
                     "pytorch 1.8, the next later one.", id="another one"),
        pytest.param(f"{REGISTRY}/pytorch-inference:99.0.0-cpu-py36", "",
                     id="one that is later than all, which is refused"),
    ],
)  # fmt: skip
def test_a_copy_has_a_note_of_the_version_that_serves_its_image(image: str, note: str) -> None:
    rule = framework_rule(image)
    assert rule is not None
    assert rule.note == note


ECR = "382416733822.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("image", "words"),
    [
        pytest.param(f"{ECR}/linear-learner:1", "linear-learner is a built-in algorithm of AWS",
                     id="the linear learner"),
        pytest.param(f"{ECR}/pca:1", "scikit-learn's PCA", id="PCA"),
        pytest.param(f"{ECR}/blazingtext:1", "the package fasttext", id="BlazingText"),
        pytest.param("localhost:5000/pca:1", "", id="one's own of that name"),
        pytest.param(f"{ECR}/pca-ours:1", "", id="a longer name"),
    ],
)  # fmt: skip
def test_a_built_in_algorithm_is_named_with_what_helps(image: str, words: str) -> None:
    note = algorithm_note(repository_of(image), registry_of(image))
    assert (words in note) if words else (note == "")
    rule = ImageRules.load(None).resolve(image)
    assert rule is not None
    assert (rule.kind, rule.note) == ("container", note)
    assert unknown_image(image, Path("images.toml")).endswith(note or "that file.")


@pytest.mark.parametrize(
    ("operator", "no_own_user", "runs"),
    [
        pytest.param({}, None, True, id="as a user of its own"),
        pytest.param({"HOSTELRY_CUSTOM_CODE": "trusted"}, "/root", True, id="on their word"),
        pytest.param({"HOSTELRY_CUSTOM_CODE": "confined"}, "/root", False, id="which is not this"),
        pytest.param({}, "/root", False, id="neither"),
    ],
)
def test_code_runs(operator: dict[str, str], no_own_user: str | None, runs: bool) -> None:
    refusal = why_not_trusted(operator, no_own_user=no_own_user)
    assert (refusal is None) == runs
    assert refusal is None or "and /root. Then start `hostelry up` again, or set" in refusal


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        pytest.param("sklearn-1.2", None, id="a known one"),
        pytest.param("sklearn-9.9", "for sklearn:9.9; of sklearn there are 0.20, 0.23, 1.0",
                     id="another version"),
        pytest.param("xgboost-0.72", "of xgboost there are 0.90, 1.0", id="an old one"),
    ],
)  # fmt: skip
def test_runtimes_that_cannot_be_made(runtime: str, words: str | None) -> None:
    found = why_no_runtime(runtime)
    assert (found is None) if words is None else (found is not None and words in found)
