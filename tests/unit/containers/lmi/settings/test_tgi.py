import pytest

from hostelry.containers.lmi.settings.options import TGI_MANNERS, as_lmi


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, {}, id="nothing but TGI's manners"),
        pytest.param(
            {"MAX_TOTAL_TOKENS": "512", "DTYPE": "bfloat16"},
            {"OPTION_MAX_MODEL_LEN": "512", "OPTION_DTYPE": "bfloat16"},
            id="TGI's names as LMI's",
        ),
        pytest.param(
            {"DTYPE": "float16", "OPTION_DTYPE": "fp32"},
            {"OPTION_DTYPE": "fp32"},
            id="LMI's own name wins",
        ),
        pytest.param({"QUANTIZE": ""}, {}, id="an empty one is unset"),
        pytest.param(
            {"OPTION_TGI_COMPAT": "false"}, {"OPTION_TGI_COMPAT": "false"}, id="manners as asked"
        ),
    ],
)
def test_the_variables_of_a_tgi_image_are_those_of_lmi(
    given: dict[str, str], expected: dict[str, str]
) -> None:
    assert as_lmi(given) == {**given, **TGI_MANNERS, **expected}
