import json

import pytest

from hostelry.logs.patterns.pattern import parse_pattern

EVENT = json.dumps(
    {"a": "x", "b": 5, "c": None, "d": True, "e": {"f": ["one", "two", {"g": 1.5}]}, "s": 404}
)
LINE = '127.0.0.1 frank [10/Oct/2000:13:25:15 -0700] "GET /a.gif HTTP/1.0" 404 1534'


@pytest.mark.parametrize(
    ("pattern", "message", "is_selected"),
    [
        pytest.param("", "anything", True, id="nothing selects all"),
        pytest.param("ERROR", "[ERROR 401] no", True, id="a term stands anywhere"),
        pytest.param("ERROR", "error", False, id="in its own case"),
        pytest.param("ERROR ARG", "ERROR in ARG", True, id="all terms in any order"),
        pytest.param("ERROR ARG", "ERROR", False, id="not one of two terms"),
        pytest.param('"no such file"', "no such file: x", True, id="a phrase"),
        pytest.param('"no such file"', "no file such", False, id="a phrase keeps its order"),
        pytest.param('"say \\"hi\\""', 'say "hi"', True, id="quotes in a phrase"),
        pytest.param("ERROR -EXIT", "ERROR", True, id="without an excluded term"),
        pytest.param("ERROR -EXIT", "ERROR EXIT", False, id="with an excluded term"),
        pytest.param('-"a b"', "a b", False, id="an excluded phrase"),
        pytest.param("?ERROR ?WARN", "WARN", True, id="any of the optional terms"),
        pytest.param("?ERROR ?WARN", "INFO", False, id="none of the optional terms"),
        pytest.param("?ERROR WARN", "WARN", True, id="optional beside others are ignored"),
        pytest.param('{ $.a = "x" }', EVENT, True, id="a member"),
        pytest.param('{ $.a != "x" }', EVENT, False, id="another value"),
        pytest.param('{ $.nope != "x" }', EVENT, False, id="a missing member is no other value"),
        pytest.param('{ $.a = "x" && $.b > 3 }', EVENT, True, id="both"),
        pytest.param('{ $.a = "y" || $.b > 3 }', EVENT, True, id="either"),
        pytest.param("{ ($.b > 6 || $.b < 6) && $.b <= 5 }", EVENT, True, id="parentheses"),
        pytest.param("{ $.c IS NULL }", EVENT, True, id="null"),
        pytest.param("{ $.d IS TRUE }", EVENT, True, id="true"),
        pytest.param("{ $.d IS FALSE }", EVENT, False, id="not false"),
        pytest.param("{ $.nope NOT EXISTS }", EVENT, True, id="does not exist"),
        pytest.param("{ $.a NOT EXISTS }", EVENT, False, id="exists"),
        pytest.param('{ $.e.f[1] = "two" }', EVENT, True, id="an index"),
        pytest.param('{ $.e.f[*] = "two" }', EVENT, True, id="any index"),
        pytest.param("{ $.e.f[2].g = 1.5 }", EVENT, True, id="a member of a list's object"),
        pytest.param("{ $.s = 4* }", EVENT, True, id="a number's digits"),
        pytest.param('{ $.e.f[0] = "o*e" }', EVENT, True, id="a wildcard inside"),
        pytest.param('{ $.a = "x" }', "no json", False, id="text is no object"),
        pytest.param("{ $.b = 5 }", '{"b": 5', False, id="broken json"),
        pytest.param("{ $.b = 1 }", '{"b": ' + "9" * 400 + "}", False, id="a huge number"),
        pytest.param("[ip, user, ..., size]", LINE, True, id="fields"),
        pytest.param("[ip, user, time, request, status, size]", LINE, True, id="every field"),
        pytest.param("[ip, user]", LINE, False, id="too few fields"),
        pytest.param("[..., status=4*, size]", LINE, True, id="a field's wildcard"),
        pytest.param("[..., status=4*, size>2000]", LINE, False, id="a field's number"),
        pytest.param("[..., status, size>1000 && size<2000]", LINE, True, id="a range"),
        pytest.param('[ip, user, time, r="*GET*", ...]', LINE, True, id="a quoted field"),
        pytest.param("[ip, , , , status!=404, ]", LINE, False, id="fields without names"),
        pytest.param('[a="x,y", b]', '"x,y" 1', True, id="a comma in quotes"),
    ],
)
def test_a_pattern_selects(pattern: str, message: str, is_selected: bool) -> None:
    assert parse_pattern(pattern)(message) is is_selected


@pytest.mark.parametrize(
    ("pattern", "cause"),
    [
        pytest.param('"open', "quotation mark", id="an open phrase"),
        pytest.param("%a.*b%", "regular expressions", id="a regular expression"),
        pytest.param("{ $.a = 1", "does not end", id="an open brace"),
        pytest.param("{ $.a }", "ends too early", id="no comparison"),
        pytest.param("{ a = 1 }", "no selector", id="no selector"),
        pytest.param('{ $.a > "x" }', "compares numbers", id="an order of texts"),
        pytest.param("{ ($.a = 1 }", "ends too early", id="an open parenthesis"),
        pytest.param("{ $.a = 1 $.b }", "not expected", id="something after it"),
        pytest.param("{ " + "(" * 100 + "$.a = 1" + ")" * 100 + " }", "nested", id="depth"),
        pytest.param("[a, ..., ...]", "once", id="two ellipses"),
        pytest.param("[=1]", "field's name", id="a field without a name"),
        pytest.param("[" + "," * 999 + "]", "fields", id="too many fields"),
        pytest.param("{ $.a IS 5 }", "NULL, TRUE or FALSE", id="a constant that is none"),
        pytest.param("{ $.a NOT 5 }", "EXISTS", id="NOT something else"),
        pytest.param("{ $" + ".a" * 99 + " = 5 }", "steps", id="a long path"),
    ],
)
def test_an_invalid_pattern_is_refused(pattern: str, cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        parse_pattern(pattern)
