from tests.cases import case, cases

from hostelry.processes.adoption import AdoptionAction, adoption_sentence, decide_adoption

WANTED = {"objectstore": "o", "control": "c", "gateway-1": "g", "gateway-2": "g"}


@cases(
    "found, expected",
    case("nothing runs: all is started", {}, dict.fromkeys(WANTED, AdoptionAction.START)),
    case("all runs as it should", WANTED, dict.fromkeys(WANTED, AdoptionAction.ADOPT)),
    case(
        "what is dead is started beside what lives",
        {"control": "c"},
        {**dict.fromkeys(WANTED, AdoptionAction.START), "control": AdoptionAction.ADOPT},
    ),
    case(
        "only what was started by something else is replaced",
        {**WANTED, "gateway-1": "old", "gateway-2": "old"},
        {
            **dict.fromkeys(WANTED, AdoptionAction.ADOPT),
            "gateway-1": AdoptionAction.REPLACE,
            "gateway-2": AdoptionAction.REPLACE,
        },
    ),
    case(
        "of what has no run file, or an old one, nobody knows",
        {**WANTED, "control": None},
        {**dict.fromkeys(WANTED, AdoptionAction.ADOPT), "control": AdoptionAction.REPLACE},
    ),
    case(
        "what is not wanted any more is ended, whatever it was started by",
        {**WANTED, "gateway-3": "g", "watcher": "w"},
        {
            **dict.fromkeys(WANTED, AdoptionAction.ADOPT),
            "gateway-3": AdoptionAction.END,
            "watcher": AdoptionAction.END,
        },
    ),
)
def test_what_becomes_of_each(
    found: dict[str, str | None], expected: dict[str, AdoptionAction]
) -> None:
    decided = decide_adoption(found, WANTED)
    assert {name: it.action for name, it in decided.items()} == expected


@cases(
    "found, sentence",
    case("a first start says nothing", {}, None),
    case("all went on", WANTED, "adopted objectstore, control, gateway-1, gateway-2"),
    case(
        "each that did not go on is named with the reason",
        {"control": "old", "gateway-3": "g"},
        "adopted nothing of what ran; control is started again: its program or its "
        "configuration has changed; gateway-3 is ended: it is not needed any more",
    ),
)
def test_what_the_operator_reads(found: dict[str, str | None], sentence: str | None) -> None:
    assert adoption_sentence(decide_adoption(found, WANTED)) == sentence
