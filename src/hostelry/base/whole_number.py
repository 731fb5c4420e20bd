"""Whole numbers that a client writes as text."""


def whole_number(text: str, least: int, most: int) -> int | None:
    """The number in `text`, if it is ASCII digits alone and from `least` to `most`.

    `int` alone takes other alphabets' digits, and fails on thousands of digits.
    """
    is_short = 0 < len(text) <= len(str(most))
    number = int(text) if is_short and text.isascii() and text.isdigit() else None
    return number if number is not None and least <= number <= most else None
