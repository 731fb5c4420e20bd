import json

import pytest
from tests.cases import case, cases

from hostelry.logs.patterns.pattern import parse_pattern

EVENT = json.dumps(
    {"a": "x", "b": 5, "c": None, "d": True, "e": {"f": ["one", "two", {"g": 1.5}]}, "s": 404}
)
LINE = '127.0.0.1 frank [10/Oct/2000:13:25:15 -0700] "GET /a.gif HTTP/1.0" 404 1534'


@cases(
    "pattern, message, is_selected",
    case("nothing selects all", "", "anything", True),
    case("a term stands anywhere", "ERROR", "[ERROR 401] no", True),
    case("in its own case", "ERROR", "error", False),
    case("all terms in any order", "ERROR ARG", "ERROR in ARG", True),
    case("not one of two terms", "ERROR ARG", "ERROR", False),
    case("a phrase", '"no such file"', "no such file: x", True),
    case("a phrase keeps its order", '"no such file"', "no file such", False),
    case("quotes in a phrase", '"say \\"hi\\""', 'say "hi"', True),
    case("without an excluded term", "ERROR -EXIT", "ERROR", True),
    case("with an excluded term", "ERROR -EXIT", "ERROR EXIT", False),
    case("an excluded phrase", '-"a b"', "a b", False),
    case("any of the optional terms", "?ERROR ?WARN", "WARN", True),
    case("none of the optional terms", "?ERROR ?WARN", "INFO", False),
    case("optional beside others are ignored", "?ERROR WARN", "WARN", True),
    case("a member", '{ $.a = "x" }', EVENT, True),
    case("another value", '{ $.a != "x" }', EVENT, False),
    case("a missing member is no other value", '{ $.nope != "x" }', EVENT, False),
    case("both", '{ $.a = "x" && $.b > 3 }', EVENT, True),
    case("either", '{ $.a = "y" || $.b > 3 }', EVENT, True),
    case("parentheses", "{ ($.b > 6 || $.b < 6) && $.b <= 5 }", EVENT, True),
    case("null", "{ $.c IS NULL }", EVENT, True),
    case("true", "{ $.d IS TRUE }", EVENT, True),
    case("not false", "{ $.d IS FALSE }", EVENT, False),
    case("does not exist", "{ $.nope NOT EXISTS }", EVENT, True),
    case("exists", "{ $.a NOT EXISTS }", EVENT, False),
    case("an index", '{ $.e.f[1] = "two" }', EVENT, True),
    case("any index", '{ $.e.f[*] = "two" }', EVENT, True),
    case("a member of a list's object", "{ $.e.f[2].g = 1.5 }", EVENT, True),
    case("a number's digits", "{ $.s = 4* }", EVENT, True),
    case("a wildcard inside", '{ $.e.f[0] = "o*e" }', EVENT, True),
    case("text is no object", '{ $.a = "x" }', "no json", False),
    case("broken json", "{ $.b = 5 }", '{"b": 5', False),
    case("a huge number", "{ $.b = 1 }", '{"b": ' + "9" * 400 + "}", False),
    case("fields", "[ip, user, ..., size]", LINE, True),
    case("every field", "[ip, user, time, request, status, size]", LINE, True),
    case("too few fields", "[ip, user]", LINE, False),
    case("a field's wildcard", "[..., status=4*, size]", LINE, True),
    case("a field's number", "[..., status=4*, size>2000]", LINE, False),
    case("a range", "[..., status, size>1000 && size<2000]", LINE, True),
    case("a quoted field", '[ip, user, time, r="*GET*", ...]', LINE, True),
    case("fields without names", "[ip, , , , status!=404, ]", LINE, False),
    case("a comma in quotes", '[a="x,y", b]', '"x,y" 1', True),
)
def test_a_pattern_selects(pattern: str, message: str, is_selected: bool) -> None:
    assert parse_pattern(pattern)(message) is is_selected


@cases(
    "pattern, cause",
    case("an open phrase", '"open', "quotation mark"),
    case("a regular expression", "%a.*b%", "regular expressions"),
    case("an open brace", "{ $.a = 1", "does not end"),
    case("no comparison", "{ $.a }", "ends too early"),
    case("no selector", "{ a = 1 }", "no selector"),
    case("an order of texts", '{ $.a > "x" }', "compares numbers"),
    case("an open parenthesis", "{ ($.a = 1 }", "ends too early"),
    case("something after it", "{ $.a = 1 $.b }", "not expected"),
    case("depth", "{ " + "(" * 100 + "$.a = 1" + ")" * 100 + " }", "nested"),
    case("two ellipses", "[a, ..., ...]", "once"),
    case("a field without a name", "[=1]", "field's name"),
    case("too many fields", "[" + "," * 999 + "]", "fields"),
    case("a constant that is none", "{ $.a IS 5 }", "NULL, TRUE or FALSE"),
    case("NOT something else", "{ $.a NOT 5 }", "EXISTS"),
    case("a long path", "{ $" + ".a" * 99 + " = 5 }", "steps"),
)
def test_an_invalid_pattern_is_refused(pattern: str, cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        parse_pattern(pattern)
