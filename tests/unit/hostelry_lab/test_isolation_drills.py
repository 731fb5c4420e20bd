from pathlib import Path

import pytest

from hostelry.fleet.launch.limited_process import LimitRecord
from hostelry_lab.isolation_drills import process_limit


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        pytest.param({"pids": {"pids.max": "4096\n"}}, 4096, id="a group that bounds them"),
        pytest.param({"memory": {}, "pids": {"pids.max": "7"}}, 7, id="beside one of memory"),
        pytest.param({"memory": {}}, None, id="no group for them"),
        pytest.param({"pids": {"pids.max": "max\n"}}, None, id="a group that allows any number"),
        pytest.param({}, None, id="no group at all"),
    ],
)
def test_how_many_processes_a_copys_groups_allow(
    files: dict[str, dict[str, str]], limit: int | None, tmp_path: Path
) -> None:
    groups = []
    for name, contents in files.items():
        group = tmp_path / name
        group.mkdir()
        groups.append(str(group))
        for file, text in contents.items():
            (group / file).write_text(text)
    assert process_limit(LimitRecord(groups=tuple(groups))) == limit
