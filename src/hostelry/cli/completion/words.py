"""The words of a command line as bash splits them, and as they were typed. Pure."""

from collections.abc import MutableMapping

COMPLETE_VARIABLE = "_HOSTELRY_COMPLETE"
# The part of the last word, up to its last colon, that bash keeps and a completion leaves out.
KEPT_VARIABLE = "_HOSTELRY_COMPLETE_KEPT"


def joined_words(environment: MutableMapping[str, str]) -> None:
    """Join COMP_WORDS that bash has split at colons, and set COMP_CWORD and the kept part.

    `hostelry chat base:es` comes as five words, one of them `:`. No-op for words that are no such.
    Source: Bash Reference Manual, COMP_WORDBREAKS.
    """
    words = environment.get("COMP_WORDS", "").split("\n")
    place = environment.get("COMP_CWORD", "")
    if not place.isdecimal() or int(place) >= len(words):
        return
    joined: list[str] = []
    at, goes_on = 0, False
    for number, word in enumerate(words):
        is_colon = word != "" and not word.strip(":") and number > 0
        if joined and (is_colon or goes_on):
            joined[-1] += word
        else:
            joined.append(word)
        goes_on = is_colon
        if number == int(place):
            at = len(joined) - 1
            break
    kept, colon, _ = joined[at].rpartition(":")
    environment["COMP_WORDS"] = "\n".join(joined)
    environment["COMP_CWORD"] = str(at)
    environment[KEPT_VARIABLE] = kept + colon
