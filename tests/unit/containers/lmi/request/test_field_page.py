"""docs/llm-fields.md is what the table of fields says."""

from pathlib import Path

import pytest

from hostelry.containers.lmi.request.field_page import main, page
from hostelry.containers.lmi.request.field_table import ROWS

DOCS = Path(__file__).resolve().parents[5] / "docs" / "llm-fields.md"


def test_the_page_shows_the_table() -> None:
    again = "run: python -m hostelry.containers.lmi.request.field_page docs/llm-fields.md"
    assert DOCS.read_text(encoding="utf-8") == page(), again
    assert all(f"`{row.name}`" in page() for row in ROWS)


def test_the_page_is_written_to_its_own_file_only(tmp_path: Path) -> None:
    main(tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page()
    (tmp_path / "page.md").write_text("# Another\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="another file"):
        main(tmp_path / "page.md")
