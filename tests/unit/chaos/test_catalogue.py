import pytest

from hostelry.base.errors import HostelryError, TerminalError
from hostelry.chaos.catalogue import Drill
from hostelry.chaos.load import Aim
from hostelry.chaos.outcome import Outcome
from hostelry.chaos.scene import Scene
from hostelry.chaos.sight import Platform
from hostelry.server.home import Home, UpConfig, new_credentials


def scene() -> Scene:
    platform = Platform(
        home=Home.default(),
        config=UpConfig(control_port=9),
        credentials=new_credentials("123456789012", "us-west-2", "AKIATEST", "secret"),
    )
    aim = Aim(endpoint="e", component=None, content_type="application/json", body=b"{}")
    return Scene(platform=platform, aim=aim, num_threads=1, say=lambda _: None)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(TerminalError("control does not run"), id="a platform that is not well"),
        pytest.param(HostelryError("try again"), id="any error of ours"),
    ],
)
def test_a_drill_that_cannot_be_played_fails_with_the_cause(error: HostelryError) -> None:
    def run(scene: Scene) -> Outcome:
        raise error

    outcome = Drill(name="d", does="something", run=run).outcome(scene())
    assert (outcome.verdict, outcome.missed) == ("FAIL", (str(error),))
