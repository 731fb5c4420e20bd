from pathlib import Path

import botocore.session
import pytest

from hostelry.api.compatibility import (
    BEGIN,
    END,
    RUNTIME_OPERATIONS,
    compatibility_table,
    main,
    with_table,
)
from hostelry.api.operations import OPERATIONS

README = Path(__file__).resolve().parents[3] / "README.md"


def test_the_readme_shows_what_the_code_does() -> None:
    text = README.read_text(encoding="utf-8")
    assert with_table(text) == text, "run: python -m hostelry.api.compatibility README.md"


def test_every_operation_has_its_name_from_the_service_model() -> None:
    session = botocore.session.get_session()
    for service, operation in OPERATIONS:
        assert operation in session.get_service_model(service).operation_names
    runtime = session.get_service_model("sagemaker-runtime").operation_names
    assert set(RUNTIME_OPERATIONS) <= set(runtime)


def test_the_table_lists_what_is_served_and_what_is_not_yet() -> None:
    rows = {
        line.split(" | ")[0]: line.split(" | ")[1:] for line in compatibility_table().split("\n")
    }
    served, missing = rows["| sagemaker"]
    assert "CreateInferenceComponent" in served
    assert "CreateTransformJob" in missing
    assert "CreateInferenceComponent" not in missing
    assert "every other operation" in missing
    served, missing = rows["| application-autoscaling"]
    assert "PutScalingPolicy" in served
    assert missing == "GetPredictiveScalingForecast |"
    assert "PutMetricAlarm" in rows["| cloudwatch"][0]
    assert rows["| sagemaker-runtime"][0] == "InvokeEndpoint, InvokeEndpointWithResponseStream"


def test_the_section_is_rewritten_in_place_and_twice_is_once(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    main(readme)
    once = readme.read_text(encoding="utf-8")
    main(readme)
    assert readme.read_text(encoding="utf-8") == once
    assert once.startswith(f"before\n{BEGIN}\n| service")
    assert once.endswith(f"|\n{END}\nafter\n")
    assert "old" not in once


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("nothing", id="no marker"),
        pytest.param(f"{BEGIN} only", id="no end"),
        pytest.param(f"{END} {BEGIN}", id="the end before the begin"),
    ],
)
def test_a_readme_without_the_section_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="no section between"):
        with_table(text)
