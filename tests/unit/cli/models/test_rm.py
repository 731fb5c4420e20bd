"""`hostelry rm`: the calls that remove resources, and how often each is sent."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from hostelry.cli.models import rm
from hostelry.cli.models.removal import Removal


def refuse(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "Any")


class SlowRemovals:
    """Components that refuse `num_refusals` removals, and exist for `num_looks` more looks."""

    def __init__(self, num_refusals: int, num_looks: int) -> None:
        self.num_refusals, self.num_looks = num_refusals, num_looks
        self.accepted: list[str] = []

    def delete_inference_component(self, InferenceComponentName: str) -> None:
        if self.num_refusals:
            self.num_refusals -= 1
            raise refuse("ValidationException", "it is busy")
        self.accepted.append(InferenceComponentName)

    def delete_nothing(self) -> None:
        """Other kinds have no resource here."""

    delete_endpoint = delete_endpoint_config = delete_model = delete_nothing

    def describe_inference_component(self, InferenceComponentName: str) -> dict[str, Any]:
        if self.accepted:
            self.num_looks -= 1
        if self.num_looks < 0:
            raise refuse("ValidationException", f"Could not find {InferenceComponentName}")
        return {}


@pytest.mark.parametrize("num_refusals", [0, 2])
def test_a_removal_is_sent_until_it_is_accepted_and_not_again(
    num_refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rm, "LOOK_EVERY_S", 0.0)
    sagemaker = SlowRemovals(num_refusals, num_looks=3)
    removal = Removal(components=("chat",))
    rm.Remover(sagemaker, None, None).remove(removal)
    assert sagemaker.accepted == ["chat"]
