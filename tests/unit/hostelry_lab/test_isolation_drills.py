from pathlib import Path

from tests.cases import case, cases

from hostelry.fleet.launch.limited_process import LimitRecord
from hostelry_lab.isolation_drills import process_limit


@cases(
    "files, limit",
    case("a group that bounds them", {"pids": {"pids.max": "4096\n"}}, 4096),
    case("beside one of memory", {"memory": {}, "pids": {"pids.max": "7"}}, 7),
    case("no group for them", {"memory": {}}, None),
    case("a group that allows any number", {"pids": {"pids.max": "max\n"}}, None),
    case("no group at all", {}, None),
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
