"""Log groups and streams of copies."""

from tests.cases import case, cases

from hostelry.domain.log_source import LogSource
from hostelry.domain.scope import Scope


@cases(
    "endpoint, component, group, stream",
    case("a model's copy", "chat", None, "/aws/sagemaker/Endpoints/chat", "v/i-1"),
    case(
        "a component's copy", "chat", "base", "/aws/sagemaker/InferenceComponents/base", "v/i-1/c-1"
    ),
    case(
        "a transform job's copy, in the one group of all jobs",
        "transform-job/nightly",
        None,
        "/aws/sagemaker/TransformJobs",
        "nightly/i-1-1700000000",
    ),
)
def test_where_output_goes(endpoint: str, component: str | None, group: str, stream: str) -> None:
    # api.md 2.6 and 5
    source = LogSource(
        scope=Scope("111122223333", "us-west-2"),
        endpoint_name=endpoint,
        variant_name="v",
        component_name=component,
        instance_id="i-1",
        copy_id="c-1",
        instance_made_at=1_700_000_000.25,
    )
    assert (source.group, source.stream) == (group, stream)
