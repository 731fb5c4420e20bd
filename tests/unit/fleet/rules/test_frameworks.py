"""AWS's framework images by their names, and on whose word their models' code runs."""

from pathlib import Path

from tests.cases import case, cases

from hostelry.fleet.rules.frameworks import (
    algorithm_note,
    find_framework_image,
    why_no_runtime,
    why_not_trusted,
)
from hostelry.fleet.rules.images import (
    ImageRules,
    describe_unknown_image,
    framework_rule,
    parse_registry,
    parse_repository,
    parse_tag,
)

REGISTRY = "683313688378.dkr.ecr.us-east-1.amazonaws.com"


@cases(
    "image, found",
    case("AWS's", f"{REGISTRY}/sagemaker-scikit-learn:1.2-1-cpu-py3", ("sklearn", "sklearn-1.2")),
    case("of another region",
        "121021644041.dkr.ecr.cn-north-1.amazonaws.com.cn/sagemaker-scikit-learn:"
                 "0.23-1-cpu-py3", ("sklearn", "sklearn-0.23")),
    case("a bare name", "sagemaker-scikit-learn:1.4-2", ("sklearn", "sklearn-1.4")),
    case("a version that is not known", f"{REGISTRY}/sagemaker-scikit-learn:9.9-1-cpu-py3",
        ("sklearn", "sklearn-9.9")),
    case("XGBoost's", f"{REGISTRY}/sagemaker-xgboost:1.7-1", ("xgboost", "xgboost-1.7")),
    case("the first XGBoost's", "811284229777.dkr.ecr.us-east-1.amazonaws.com/xgboost:latest",
        ("xgboost", "xgboost-0.90")),
    case("one's own of that name", "111122223333.dkr.ecr.us-east-1.amazonaws.com/xgboost:latest",
        None),
    case("an old scikit-learn's", f"{REGISTRY}/sagemaker-scikit-learn:0.20.0-cpu-py3",
        ("sklearn", "sklearn-0.20")),
    case("an old PyTorch's", f"{REGISTRY}/pytorch-inference:1.8.1-cpu-py36",
        ("pytorch", "pytorch-1.8")),
    case("a version without a runtime, by the next later one",
        f"{REGISTRY}/pytorch-inference:1.6.0-cpu-py36", ("pytorch", "pytorch-1.8")),
    case("so with TensorFlow 1", f"{REGISTRY}/tensorflow-inference:1.15.5-cpu",
        ("tensorflow", "tensorflow-2.3")),
    case("for another processor", f"{REGISTRY}/sagemaker-xgboost:1.5-1-arm64",
        ("xgboost", "xgboost-1.5")),
    case("PyTorch's for GPUs",
        f"{REGISTRY}/pytorch-inference:2.6.0-gpu-py312-cu124-ubuntu22.04-sagemaker",
        ("pytorch", "pytorch-2.6")),
    case("for Graviton",
        f"{REGISTRY}/pytorch-inference-graviton:2.1-cpu-py310-ubuntu20.04-sagemaker",
        ("pytorch", "pytorch-2.1")),
    case("TensorFlow's", f"{REGISTRY}/tensorflow-inference:2.19.0-cpu",
        ("tensorflow", "tensorflow-2.19")),
    case("Hugging Face's, by the version of transformers",
        f"{REGISTRY}/huggingface-pytorch-inference:2.6.0-transformers4.49.0-cpu-py312-"
                 "ubuntu22.04", ("huggingface", "huggingface-4.49")),
    case("without a version of transformers", f"{REGISTRY}/huggingface-pytorch-inference:2.6.0-cpu",
        None),
    case("Hugging Face's on TensorFlow",
        f"{REGISTRY}/huggingface-tensorflow-inference:2.11.0-transformers4.26.0-cpu", None),
    case("AutoGluon's", f"{REGISTRY}/autogluon-inference:1.3.0-cpu-py311",
        ("autogluon", "autogluon-1.3")),
    case("one's own", f"{REGISTRY}/pytorch-inference:2.6.0-cpu-py312-ours", None),
    case("no tag", f"{REGISTRY}/sagemaker-scikit-learn@sha256:0", None),
    case("no version", f"{REGISTRY}/sagemaker-scikit-learn:latest", None),
    case("a longer name", f"{REGISTRY}/my-sagemaker-scikit-learn:1.2", None),
    case("another", f"{REGISTRY}/sagemaker-scikit-learn-x:1.2", None),
)  # fmt: skip
def test_images(image: str, found: tuple[str, str] | None) -> None:
    served = find_framework_image(parse_repository(image), parse_tag(image), parse_registry(image))
    assert (None if served is None else (served.framework, served.runtime)) == found
    rule = ImageRules().resolve(image)
    assert (None if rule is None else rule.argv[-4:]) == (
        None if found is None else ("--framework", found[0], "--runtime", found[1])
    )


@cases(
    "image, note",
    case("its own version", f"{REGISTRY}/pytorch-inference:1.8.1-cpu-py36", ""),
    case("another one", f"{REGISTRY}/pytorch-inference:1.6.0-cpu-py36",
        "The image is of pytorch 1.6, for which there is no runtime: it is served by "
                 "pytorch 1.8, the next later one."),
    case("one that is later than all, which is refused",
        f"{REGISTRY}/pytorch-inference:99.0.0-cpu-py36", ""),
)  # fmt: skip
def test_a_copy_has_a_note_of_the_version_that_serves_its_image(image: str, note: str) -> None:
    rule = framework_rule(image)
    assert rule is not None
    assert rule.note == note


ECR = "382416733822.dkr.ecr.us-east-1.amazonaws.com"


@cases(
    "image, words",
    case("the linear learner", f"{ECR}/linear-learner:1",
        "linear-learner is a built-in algorithm of AWS"),
    case("PCA", f"{ECR}/pca:1", "scikit-learn's PCA"),
    case("BlazingText", f"{ECR}/blazingtext:1", "the package fasttext"),
    case("one's own of that name", "localhost:5000/pca:1", ""),
    case("a longer name", f"{ECR}/pca-ours:1", ""),
)  # fmt: skip
def test_a_built_in_algorithm_is_named_with_what_helps(image: str, words: str) -> None:
    note = algorithm_note(parse_repository(image), parse_registry(image))
    assert (words in note) if words else (note == "")
    rule = ImageRules.load(None).resolve(image)
    assert rule is not None
    assert (rule.kind, rule.note) == ("container", note)
    assert describe_unknown_image(image, Path("images.toml")).endswith(note or "that file.")


@cases(
    "operator, no_own_user, runs",
    case("as a user of its own", {}, None, True),
    case("on their word", {"HOSTELRY_CUSTOM_CODE": "trusted"}, "/root", True),
    case("which is not this", {"HOSTELRY_CUSTOM_CODE": "confined"}, "/root", False),
    case("neither", {}, "/root", False),
)
def test_code_runs(operator: dict[str, str], no_own_user: str | None, runs: bool) -> None:
    refusal = why_not_trusted(operator, no_own_user=no_own_user)
    assert (refusal is None) == runs
    assert refusal is None or "and /root. Then start `hostelry up` again, or set" in refusal


@cases(
    "runtime, words",
    case("a known one", "sklearn-1.2", None),
    case("another version", "sklearn-9.9", "for sklearn:9.9; of sklearn there are 0.20, 0.23, 1.0"),
    case("an old one", "xgboost-0.72", "of xgboost there are 0.90, 1.0"),
)  # fmt: skip
def test_runtimes_that_cannot_be_made(runtime: str, words: str | None) -> None:
    found = why_no_runtime(runtime)
    assert (found is None) if words is None else (found is not None and words in found)
