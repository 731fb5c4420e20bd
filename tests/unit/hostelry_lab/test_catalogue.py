from tests.cases import case, cases

from hostelry.base.errors import HostelryError, TerminalError
from hostelry.home.home import Home, UpConfig, new_credentials
from hostelry_lab.catalogue import Drill
from hostelry_lab.context import DrillContext
from hostelry_lab.load import LoadTarget
from hostelry_lab.observer import PlatformObserver
from hostelry_lab.outcome import DrillOutcome


def context() -> DrillContext:
    platform = PlatformObserver(
        home=Home.default(),
        config=UpConfig(control_port=9),
        credentials=new_credentials("123456789012", "us-west-2", "AKIATEST", "secret"),
    )
    load_target = LoadTarget(
        endpoint="e", component=None, content_type="application/json", body=b"{}"
    )
    return DrillContext(
        platform=platform, load_target=load_target, num_threads=1, progress=lambda _: None
    )


@cases(
    "error",
    case("a platform that is not well", TerminalError("control does not run")),
    case("any error of ours", HostelryError("try again")),
)
def test_a_drill_that_cannot_be_played_fails_with_the_cause(error: HostelryError) -> None:
    def run(context: DrillContext) -> DrillOutcome:
        raise error

    outcome = Drill(name="d", does="something", run=run).outcome(context())
    assert (outcome.verdict, outcome.missed) == ("FAIL", (str(error),))
