"""Pages in Prometheus' text format: the parts that are kept, and the join of several pages."""

from tests.cases import case, cases

from hostelry.base.metrics_page import MetricsPage, PageJoin, parse_page

OURS = {"endpoint": "e", "copy": "c1", "container": ""}


def joined(page: bytes) -> str:
    join = PageJoin(10_000)
    assert join.add(OURS, parse_page(page, ("hostelry_",), max_series=3)) is not None
    return join.text()


@cases(
    "page, lines",
    case("a sample, without its time",
        b"# HELP a Words.\n# TYPE a counter\na{x=\"1\"} 2 1700000000000\n",
        ["# HELP a Words.", "# TYPE a counter", 'a{endpoint="e",copy="c1",x="1"} 2']),
    case("a forged label is exported", b'a{copy="other"} 1\n',
        ["# TYPE a untyped", 'a{endpoint="e",copy="c1",exported_copy="other"} 1']),
    case("a label that says the same is left out, and absent ones are ours too",
        b'a{copy="c1",container="x"} 1\n',
        ["# TYPE a untyped", 'a{endpoint="e",copy="c1",exported_container="x"} 1']),
    case("escapes are kept", b'a{x="\\"\\n\\\\,}"} +Inf\n',
        ["# TYPE a untyped", 'a{endpoint="e",copy="c1",x="\\"\\n\\\\,}"} +Inf']),
    case("a histogram's parts stay together",
        b'# TYPE t histogram\nt_bucket{le="+Inf"} 1\nt_sum 2\nt_count 1\n',
        ["# TYPE t histogram", 't_bucket{endpoint="e",copy="c1",le="+Inf"} 1',
                  't_sum{endpoint="e",copy="c1"} 2', 't_count{endpoint="e",copy="c1"} 1']),
    case("a repeated series counts once", b"a 1\na 2\n",
        ["# TYPE a untyped", 'a{endpoint="e",copy="c1"} 1']),
)  # fmt: skip
def test_a_page_under_our_labels(page: bytes, lines: list[str]) -> None:
    assert joined(page).splitlines() == lines


@cases(
    "page, dropped",
    case("an open brace", b"a{x=\"1\" 2\n", {"invalid": 1}),
    case("an unknown escape", b'a{x="1\\t"} 2\n', {"invalid": 1}),
    case("a label twice", b'a{x="1",x="2"} 2\n', {"invalid": 1}),
    case("a name as a label", b'a{__name__="b"} 2\n', {"invalid": 1}),
    case("no numbers", b"a 0x10\na 1_0\na 1e999\na one\n", {"invalid": 4}),
    case("not UTF-8", b'a{x="\xff"} 1\n', {"invalid": 1}),
    case("control characters", b'a{x="\0"} 1\na\r{} 1\r\n', {"invalid": 2}),
    case("a huge line", b"a" * 17_000 + b" 1\n", {"invalid": 1}),
    case("other names", b'{"a.b"} 1\n9a 1\n\xc3\xa4 1\n', {"invalid": 3}),
    case("no part of its histogram", b"# TYPE a histogram\na 1\na_bucket 1\n", {"invalid": 2}),
    case("a name of the platform", b"hostelry_requests_total 9\n", {"reserved": 1}),
    case("another document", b"<html>\nhello\n</html>\n", {"invalid": 3}),
)  # fmt: skip
def test_what_is_not_kept_is_counted(page: bytes, dropped: dict[str, int]) -> None:
    assert parse_page(page, ("hostelry_",)) == MetricsPage((), dropped)


def test_series_beyond_the_limit_are_counted() -> None:
    page = parse_page(b"".join(b"a%d 1\n" % it for it in range(5)), max_series=3)
    assert [it.name for it in page.families] == ["a0", "a1", "a2"]
    assert page.dropped == {"limit": 2}


def test_the_first_type_of_a_family_counts_and_a_page_without_room_leaves_nothing() -> None:
    join = PageJoin(100)
    first, other = b"# TYPE t summary\nt_sum 1\n", b"# TYPE t gauge\nt 1\n"
    assert join.add({"copy": "1"}, parse_page(first)) == {}
    assert join.add({"copy": "2"}, parse_page(other)) == {"type": 1}
    assert join.add({"copy": "3"}, parse_page(b"# TYPE t_sum gauge\nt_sum 1\n")) == {"type": 1}
    assert join.add({"copy": "4" * 90}, parse_page(b"b 1\n")) is None
    assert join.add({"copy": "5"}, parse_page(b"# TYPE b gauge\nb 1\n")) == {}
    assert join.text().splitlines() == [
        "# TYPE t summary", 't_sum{copy="1"} 1', "# TYPE b gauge", 'b{copy="5"} 1',
    ]  # fmt: skip
