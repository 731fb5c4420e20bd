import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.copy import CopySpec
from hostelry.domain.model import ArtifactSource, Container, SourceKind
from hostelry.fleet.agent.lifecycle import (
    Ending,
    EndKind,
    add_note,
    describe_download_failure,
    describe_late_start,
    describe_start_failure,
)
from hostelry.fleet.artifacts.sources import container_sources
from hostelry.fleet.launch.launcher import describe_exit
from hostelry.fleet.rules.images import LMI_RULE, ImageRule

ARCHIVE = ArtifactSource(uri="s3://b/m.tar.gz", kind=SourceKind.ARCHIVE)


@cases(
    "environment, named",
    case("no variables", {}, {}),
    case("a hub id is the model server's", {"HF_MODEL_ID": "org/model"}, {}),
    case("a local folder too", {"HF_MODEL_ID": "/opt/ml/model"}, {}),
    case(
        "a prefix without its slash",
        {"HF_MODEL_ID": "s3://b/p"},
        {"HF_MODEL_ID": ArtifactSource(uri="s3://b/p/", kind=SourceKind.PREFIX)},
    ),
    case(
        "a prefix and an archive",
        {"OPTION_MODEL_ID": "s3://b/p/", "HF_MODEL_ID": "s3://b/m.tar.gz"},
        {
            "OPTION_MODEL_ID": ArtifactSource(uri="s3://b/p/", kind=SourceKind.PREFIX),
            "HF_MODEL_ID": ARCHIVE,
        },
    ),
    case(
        "code that an SDK left beside the model",
        {"SAGEMAKER_SUBMIT_DIRECTORY": "s3://b/m.tar.gz"},
        {"SAGEMAKER_SUBMIT_DIRECTORY": ARCHIVE},
    ),
    case("other variables are left alone", {"OTHER": "s3://b/p/"}, {}),
)
def test_container_sources(environment: dict[str, str], named: dict[str, ArtifactSource]) -> None:
    container = Container(image="lmi", source=ARCHIVE, environment=environment)
    assert container_sources(container) == (ARCHIVE, named)


def spec(owner: str) -> CopySpec:
    return CopySpec(
        id="c-1",
        owner=owner,
        container=Container(image="lmi"),
        requirements=None,
        download_timeout_s=60.0,
        startup_timeout_s=60.0,
    )


@pytest.mark.parametrize(
    ("owner", "kind", "detail"),
    [
        (
            "variant/AllTraffic",
            EndKind.STARTUP_TIMEOUT,
            "The primary container for production variant AllTraffic did not pass the ping health "
            "check. because",
        ),
        (
            "component/es",
            EndKind.STARTUP_TIMEOUT,
            "The container for inference component es did not pass the ping health check. because",
        ),
        (
            "variant/AllTraffic",
            EndKind.EXITED,
            "CannotStartContainerError. Please ensure the model container for variant AllTraffic "
            "starts correctly. because",
        ),
        (
            "component/es",
            EndKind.PROBE_REFUSED,
            "The container for inference component es passes its health check but serves no "
            "request. because",
        ),
    ],
)
def test_reasons_take_the_services_form_and_add_the_cause(
    owner: str, kind: EndKind, detail: str
) -> None:
    assert describe_start_failure(spec(owner), Ending(kind=kind, detail="because")) == detail


def test_a_download_failure_names_the_url_and_the_cause() -> None:
    reason = describe_download_failure(spec("component/es"), ARCHIVE.uri, "NoSuchKey")
    assert 'from URL: "s3://b/m.tar.gz"' in reason
    assert reason.endswith("NoSuchKey")


@pytest.mark.parametrize(
    ("code", "detail"),
    [(3, "exited with code 3"), (-9, "ended by signal 9"), (None, "process is gone")],
)
def test_exit_detail(code: int | None, detail: str) -> None:
    assert detail in describe_exit(code)


def test_a_late_start_names_what_its_time_was_for() -> None:
    container = Container(image="lmi", environment={"HF_MODEL_ID": "org/m"})
    detail = describe_late_start(replace(spec("component/x"), container=container), "no ping")
    assert detail == (
        "It was not ready within 120 s (it fetches org/m from the Hugging Face hub: 60 s for the "
        "download and 60 s for its start): no ping."
    )


@cases(
    "rule, expected",
    case("no rule", None, "because"),
    case("no note", LMI_RULE, "because"),
    case("a server of ours", replace(LMI_RULE, note="A later version."),
        "because A later version."),
    case("a container", replace(LMI_RULE, kind="container", note="An algorithm."),
        "An algorithm. because"),
)  # fmt: skip
def test_a_failure_has_the_note_of_the_images_rule(rule: ImageRule | None, expected: str) -> None:
    assert add_note("because", rule) == expected
