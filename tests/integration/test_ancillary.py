"""Programs that use the services around inference as AWS's published examples do, on one platform.

Each file of `sdk_programs/ancillary` is such a program: plain boto3, run under `hostelry exec`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform

from hostelry.home.home import Home

pytestmark = pytest.mark.integration

PROGRAMS = sorted((Path(__file__).parent / "sdk_programs" / "ancillary").glob("*.py"))


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = Home(tmp_path_factory.mktemp("ancillary") / "home")
    home.root.mkdir()
    home.images.write_text(ECHO_IMAGE)
    with Platform(home.root, "--pace", "10") as running:
        yield running


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_of_aws_runs_unchanged(platform: Platform, program: Path) -> None:
    done = platform.exec([sys.executable, str(program)])
    assert done.stdout.strip()
