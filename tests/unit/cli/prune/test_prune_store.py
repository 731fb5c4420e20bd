"""The store whose objects `hostelry prune` may remove."""

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli.prune import check_store
from hostelry.home.home import UpConfig

OWN = UpConfig(control_port=1)
SHARED = UpConfig(control_port=1, s3_endpoint="http://store:9000")


def test_objects_of_an_endpoint_are_removed_only_if_no_other_platform_uses_it() -> None:
    check_store(OWN, sole_platform=False)
    check_store(SHARED, sole_platform=True)
    with pytest.raises(TerminalError, match="http://store:9000"):
        check_store(SHARED, sole_platform=False)
