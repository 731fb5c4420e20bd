"""The image that has a source served: AWS's own names, which programs use too. Pure."""

from collections.abc import Mapping

from hostelry.cli.deploy.recognise import DeployKind, Recognised

REGISTRY = "763104351884.dkr.ecr.{region}.amazonaws.com/"
ALGORITHMS = "683313688378.dkr.ecr.{region}.amazonaws.com/"
LLM_IMAGE = REGISTRY + "djl-inference:0.33.0-lmi15.0.0-cu128"
TRITON_IMAGE = "785573368785.dkr.ecr.{region}.amazonaws.com/sagemaker-tritonserver:24.09-py3"
GRAPH_IMAGE = "hostelry/graph"
FRAMEWORK_IMAGES: Mapping[str, str] = {
    "sklearn": ALGORITHMS + "sagemaker-scikit-learn:{version}-1-cpu-py3",
    "xgboost": ALGORITHMS + "sagemaker-xgboost:{version}-1",
    "pytorch": REGISTRY + "pytorch-inference:{version}.0-cpu-py311",
    "tensorflow": REGISTRY + "tensorflow-inference:{version}.0-cpu",
    "huggingface": REGISTRY
    + "huggingface-pytorch-inference:2.6.0-transformers{version}.0-cpu-py312-ubuntu22.04",
    "autogluon": REGISTRY + "autogluon-inference:{version}.0-cpu-py311",
}


def image_of(recognised: Recognised, region: str) -> str:
    """The image of what is served without one of its own."""
    pattern = {
        DeployKind.LLM: LLM_IMAGE,
        DeployKind.TRITON: TRITON_IMAGE,
        DeployKind.GRAPH: GRAPH_IMAGE,
    }.get(recognised.kind) or FRAMEWORK_IMAGES[recognised.framework]
    return pattern.format(region=region, version=recognised.version)
