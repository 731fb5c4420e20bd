import pytest

from hostelry.processes.adoption import AdoptionAction, adoption_sentence, decide_adoption

WANTED = {"objectstore": "o", "control": "c", "gateway-1": "g", "gateway-2": "g"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            {}, dict.fromkeys(WANTED, AdoptionAction.START), id="nothing runs: all is started"
        ),
        pytest.param(
            WANTED, dict.fromkeys(WANTED, AdoptionAction.ADOPT), id="all runs as it should"
        ),
        pytest.param(
            {"control": "c"},
            {**dict.fromkeys(WANTED, AdoptionAction.START), "control": AdoptionAction.ADOPT},
            id="what is dead is started beside what lives",
        ),
        pytest.param(
            {**WANTED, "gateway-1": "old", "gateway-2": "old"},
            {
                **dict.fromkeys(WANTED, AdoptionAction.ADOPT),
                "gateway-1": AdoptionAction.REPLACE,
                "gateway-2": AdoptionAction.REPLACE,
            },
            id="only what was started by something else is replaced",
        ),
        pytest.param(
            {**WANTED, "control": None},
            {**dict.fromkeys(WANTED, AdoptionAction.ADOPT), "control": AdoptionAction.REPLACE},
            id="of what has no run file, or an old one, nobody knows",
        ),
        pytest.param(
            {**WANTED, "gateway-3": "g", "watcher": "w"},
            {
                **dict.fromkeys(WANTED, AdoptionAction.ADOPT),
                "gateway-3": AdoptionAction.END,
                "watcher": AdoptionAction.END,
            },
            id="what is not wanted any more is ended, whatever it was started by",
        ),
    ],
)
def test_what_becomes_of_each(
    found: dict[str, str | None], expected: dict[str, AdoptionAction]
) -> None:
    decided = decide_adoption(found, WANTED)
    assert {name: it.action for name, it in decided.items()} == expected


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        pytest.param({}, None, id="a first start says nothing"),
        pytest.param(
            WANTED, "adopted objectstore, control, gateway-1, gateway-2", id="all went on"
        ),
        pytest.param(
            {"control": "old", "gateway-3": "g"},
            "adopted nothing of what ran; control is started again: its program or its "
            "configuration has changed; gateway-3 is ended: it is not needed any more",
            id="each that did not go on is named with the reason",
        ),
    ],
)
def test_what_the_operator_reads(found: dict[str, str | None], sentence: str | None) -> None:
    assert adoption_sentence(decide_adoption(found, WANTED)) == sentence
