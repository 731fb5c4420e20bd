"""The benchmark of decisions measures allowed calls, kept and not kept."""

from benchmarks.permission_cost import list_settings, measure


def test_each_setting_has_a_cost_kept_and_not_kept() -> None:
    rows = measure(rounds=1, calls=3)
    assert [row["policies"] for row in rows] == list(list_settings())
    assert all(row["kept us"] > 0 and row["not kept us"] > 0 for row in rows)
