"""The models and artifacts that a component's description names."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from hostelry.cli.models.removal import HeldComponent, held_component


class _Sagemaker:
    """Describes one component."""

    def __init__(self, shown: dict[str, Any] | None) -> None:
        self._shown = shown

    def describe_inference_component(self, **_: str) -> dict[str, Any]:
        if self._shown is None:
            message = "Could not find inference component x"
            raise ClientError({"Error": {"Code": "E", "Message": message}}, "Describe")
        return {"EndpointName": "shop", **self._shown}


@pytest.mark.parametrize(
    ("shown", "held"),
    [
        pytest.param(
            {"Specification": {"ModelName": "m"}},
            HeldComponent(name="x", endpoint="shop", models=("m",)),
            id="a model",
        ),
        pytest.param(
            {
                "Specification": {
                    "BaseInferenceComponentName": "llama",
                    "Container": {"ArtifactUrl": "s3://b/a.tar.gz"},
                }
            },
            HeldComponent(name="x", endpoint="shop", base="llama", data=("s3://b/a.tar.gz",)),
            id="an adapter",
        ),
        pytest.param(
            {
                "Specification": {
                    "Container": {
                        "Environment": {
                            "OPTION_MODEL_ID": "s3://b/m/",
                            "HF_MODEL_ID": "org/name",
                            "OUTPUT": "s3://b/others/",
                        }
                    }
                }
            },
            HeldComponent(name="x", endpoint="shop", data=("s3://b/m/",)),
            id="a model's address in a variable, and no other variable's",
        ),
        pytest.param(
            {"Specifications": [{"ModelName": "a"}, {"ModelName": "b"}]},
            HeldComponent(name="x", endpoint="shop", models=("a", "b")),
            id="one by instance type",
        ),
        pytest.param(None, None, id="one that was deleted meanwhile"),
    ],
)
def test_what_a_component_names(shown: dict[str, Any] | None, held: HeldComponent | None) -> None:
    assert held_component(_Sagemaker(shown), "x") == held
