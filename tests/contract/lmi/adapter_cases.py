"""Cases of adapters: their routes, the choice of an adapter, the contract with the platform."""

from tests.contract.lmi.async_cases import CHAT, GREEDY, HI, PROMPT
from tests.contract.lmi.exchange import (
    TEXT,
    VLLM,
    Case,
    Served,
    get,
    has,
    one,
    several,
)

IDENTIFIER = "X-Amzn-SageMaker-Adapter-Identifier"
ALIAS = "X-Amzn-SageMaker-Adapter-Alias"
PINNED = {VLLM: (424, {"code": 424, "message": has("pin is not done with vLLM")})}
ES = {"name": "es", "preload": True, "pin": False}


def register(text: str, query: str, status: int, words: str, **more: object) -> Case:
    found = {"code": status, "message": has(words)}
    return one("1.10", text, path=f"/adapters?{query}", status=status, found=found, **more)


@several("1.4", "the adapters of the model's folder answer differently")
def of_the_folder(served: Served) -> None:
    assert len({served.text(**HI, adapters=it) for it in ("", "es", "fr")}) == 3


@several("1.10", "an adapter is registered, updated, listed, used and removed")
def whole_life(served: Served) -> None:
    client, alias = served.client, {ALIAS: "german"}
    path = f"/adapters?name=de-1&src={served.places['outside']}"
    assert client.post(path, headers=alias).json() == {"status": "Adapter german registered"}
    try:
        assert client.post(path).status_code == 409
        assert client.get("/adapters/de-1").json()["src"] == str(served.places["outside"])
        assert served.text(**HI, adapters="de-1") != served.text(**HI)
        moved = client.post(f"/adapters/de-1/update?src={served.places['es']}")
        assert (moved.status_code, moved.json()) == (200, {"status": "Adapter german updated"})
        assert served.text(**HI, adapters="de-1") == served.text(**HI, adapters="es")
    finally:
        gone = client.delete("/adapters/de-1")
    assert gone.json() == {"status": "Adapter german unregistered"}
    assert client.get("/adapters/de-1").status_code == 404
    assert served.ask({**HI, "adapters": "de-1"}).status_code == 424
    assert "Registered adapter german from" in served.log.read_text(), "AWS's own lab greps it"


@several("1.10", "the list comes in pages")
def pages(served: Served) -> None:
    first = served.client.get("/adapters?limit=1").json()
    rest = served.client.get(f"/adapters?limit=1&next_page_token={first['nextPageToken']}").json()
    assert [it["name"] for it in (*first["adapters"], *rest["adapters"])] == ["es", "fr"]
    assert "nextPageToken" not in rest


@several("1.10", "an adapter without preload is read by its first request")
def lazy(served: Served) -> None:
    path = f"/adapters?name=lazy&src={served.places['es']}&preload=false"
    assert served.client.post(path).status_code == 200
    try:
        assert served.client.get("/adapters/lazy").json()["loaded"] is False
        assert served.text(**HI, adapters="lazy") == served.text(**HI, adapters="es")
    finally:
        assert served.client.delete("/adapters/lazy").status_code == 200


@several("1.10", "a refused adapter leaves nothing behind")
def nothing_left(served: Served) -> None:
    before = served.client.get("/adapters").json()
    refused = served.client.post(f"/adapters?name=dora&src={served.places['dora']}")
    assert (refused.status_code, "use_dora" in refused.text) == (424, True)
    assert served.client.get("/adapters").json() == before


@several("1.12", "a registration by a JSON body is answered in plain text")
def by_body(served: Served) -> None:
    body = {"name": "it", "src": str(served.places["outside"]), "preload": True, "pin": False}
    answer = served.client.post("/adapters", json=body)
    assert (answer.status_code, answer.text) == (200, "Adapter it registered")
    assert answer.headers["content-type"].startswith(TEXT)
    assert served.client.delete("/adapters/it").status_code == 200


@several("1.12", "the platform's header chooses the adapter of every schema")
def by_header(served: Served) -> None:
    header = {IDENTIFIER: "es", ALIAS: "spanish"}
    assert served.ask(HI, **header).json() == served.ask({**HI, "adapters": "es"}).json()
    for body in (PROMPT, CHAT):
        answer = served.ask({**body, "model": "lmi"}, **header).json()
        named = served.ask({**body, "model": "es"}).json()
        assert answer["choices"] == named["choices"]
        assert (answer["model"], named["model"]) == ("spanish", "es")


@several("1.11", "the header comes before the query, the query before the body")
def precedence(served: Served) -> None:
    es, fr = ({**HI, "adapters": it} for it in ("es", "fr"))
    texts = {it["adapters"]: served.text(**it) for it in (es, fr)}
    by_query = served.ask(fr, "/invocations?adapter=es").json()["generated_text"]
    by_header = served.ask(fr, "/invocations?adapter=fr", **{IDENTIFIER: "es"}).json()
    assert (by_query, by_header["generated_text"]) == (texts["es"], texts["es"])


@several("1.11", "a list has an adapter for each input, empty the base")
def listed(served: Served) -> None:
    names = ["es", "", "fr"]
    for number in range(5):  # from now on every slot of vLLM is in use
        path = f"/adapters?name=more-{number}&src={served.places['outside']}"
        assert served.client.post(path).status_code == 200
        assert served.client.delete(f"/adapters/more-{number}").status_code == 200
    alone = [served.text(**HI, adapters=it) for it in names]
    answer = served.ask({**HI, "inputs": ["hello"] * 3, "adapters": names}).json()
    assert [it["generated_text"] for it in answer] == alone


@several("1.10", "a pinned adapter is unpinned again")
def unpinned(served: Served) -> None:
    path = f"/adapters?name=pinned&src={served.places['outside']}&pin=true"
    answer = served.client.post(path)
    if served.backend == VLLM:
        assert (answer.status_code, "pin is not done with vLLM" in answer.text) == (424, True)
        return
    assert answer.status_code == 200, answer.text
    assert served.client.get("/adapters/pinned").json()["pin"] is True
    assert served.client.post("/adapters/pinned/update?pin=false").status_code == 200
    assert served.client.delete("/adapters/pinned").status_code == 200


CASES = (
    of_the_folder,
    whole_life,
    pages,
    lazy,
    nothing_left,
    unpinned,
    get("1.10", "one adapter", "/adapters/es", found=ES),
    get("1.10", "one adapter below the model", "/models/lmi/adapters/es", found=ES),
    get("1.10", "adapters of another model", "/models/x/adapters", status=404),
    get("1.10", "an adapter that is not there", "/adapters/de", status=404, found={"code": 404}),
    register("no source", "name=de", 400, "src"),
    register("no name", "src={outside}", 400, "name"),
    register("a name that is taken", "name=es&src={outside}", 409, "already exists"),
    register("a source that is no folder's", "name=de&src=ftp://h/x", 409, "ftp://h/x"),
    register("a folder that is not there", "name=de&src={outside}/none", 424, "not a folder"),
    register(
        "a pin without preload", "name=de&src={outside}&preload=false&pin=true", 424, "preload"
    ),
    register("a rank above max_lora_rank", "name=de&src={wide}", 424, "32"),
    one("1.10", "an update of none", path="/adapters/de/update?pin=true", status=404),
    one("1.10", "a removal of none", path="/adapters/de", method="DELETE", status=404),
    by_body,
    by_header,
    precedence,
    listed,
    one("1.11", "no adapter is the base", {**HI, "adapters": ""}),
    one(
        "1.11", "as many adapters as inputs",
        {"inputs": ["a"], "adapters": ["es", "fr"], "parameters": GREEDY}, status=424,
        found={"error": has("Number of adapters is not equal to the number of inputs")},
    ),
    one(
        "1.11", "one of a list that is not there",
        {"inputs": ["a", "b"], "adapters": ["es", "de"], "parameters": GREEDY}, status=424,
        found={"error": has("de is not registered")},
    ),
    one("1.11", "an adapter as OpenAI's model", {**CHAT, "model": "es"}, found={"model": "es"}),
    one(
        "1.12", "a registration by a body without a source", {"name": "it"}, path="/adapters",
        status=400,
    ),
    one(
        "1.12", "an adapter of the platform that is not there", HI, headers={IDENTIFIER: "de"},
        status=424, found={"error": has("de")},
    ),
    get(
        "1.12", "adapters beside the base in OpenAI's list", "/v1/models",
        found={"data": lambda it: [card["id"] for card in it] == ["lmi", "es", "fr"]},
    ),
)  # fmt: skip
