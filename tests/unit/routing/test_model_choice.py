"""The instance for a request that names a model, and when the model is copied to another one."""

from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.routing.model_choice import InstanceView, ModelChoice, choose_for_model

LOAD_MS = 1000.0


def home(name: str, outstanding: int = 0, left_ms: float = 0.0) -> InstanceView:
    return InstanceView(name, outstanding, 20.0, left_ms, True)


def away(
    name: str, outstanding: int = 0, load_ms: float = LOAD_MS, displaced_ms: float = 0.0
) -> InstanceView:
    return InstanceView(name, outstanding, 20.0, load_ms, False, displaced_ms)


@cases(
    "instances, expected, index, loads, copy_to",
    case("where it is loaded", [away("a"), home("b", 9)], 1, 1, False, None),
    case("the home with less wait", [home("a", 3), home("b", 1)], 1, 1, False, None),
    case("where it is being loaded", [home("a", 0, LOAD_MS), away("b")], 1, 0, False, None),
    case(
        "where it is being loaded, however many wait there",
        [home("a", 99, LOAD_MS), away("b")],
        1e6,
        0,
        False,
        None,
    ),
    case(
        "elsewhere if that load ends sooner",
        [home("a", 0, 5000.0), away("b", load_ms=100.0)],
        1,
        1,
        True,
        None,
    ),
    case("elsewhere if the wait is longer", [home("a", 60), away("b")], 0, 1, True, None),
    case(
        "home if elsewhere more would be evicted than saved",
        [home("a", 60), away("b", displaced_ms=500.0)],
        0,
        0,
        False,
        None,
    ),
    case(
        "where its files are, if it is loaded nowhere",
        [away("a", load_ms=2000.0), away("b", load_ms=200.0)],
        1,
        1,
        True,
        None,
    ),
    case("not where many wait, if nowhere", [away("a", 99), away("b", 2)], 1, 1, True, None),
    case("home, and a copy if it stays hot", [home("a", 4), away("b")], 100, 0, False, 1),
    case("no copy if it cools down", [home("a", 4), away("b")], 20, 0, False, None),
    case(
        "no copy that evicts what is worth more",
        [home("a", 4), away("b", displaced_ms=9000.0)],
        100,
        0,
        False,
        None,
    ),
    case(
        "no second copy while one is being loaded",
        [home("a", 4), home("b", 4, 10.0), away("c")],
        1e6,
        0,
        False,
        None,
    ),
    case("no copy where all are as busy", [home("a", 4), away("b", 4)], 1e6, 0, False, None),
    case("the only one", [home("a", 99)], 1e6, 0, False, None),
)
def test_a_request_goes_where_it_costs_least(
    instances: list[InstanceView], expected: float, index: int, loads: bool, copy_to: int | None
) -> None:
    choice = choose_for_model("m", instances, expected)
    assert (choice.index, choice.loads, choice.copy_to) == (index, loads, copy_to)
    assert choice.reason


def test_cold_models_spread_and_each_stays_put_when_another_instance_is_lost() -> None:
    views = [away(f"i-{number}") for number in range(8)]
    places = {f"m{n}": choose_for_model(f"m{n}", views, 0).index for n in range(400)}
    shares = [list(places.values()).count(index) for index in range(8)]
    assert min(shares) > 25
    for lost in range(8):
        left = [*views[:lost], *views[lost + 1 :]]
        for model, index in places.items():
            now = left[choose_for_model(model, left, 0).index]
            assert index == lost or now == views[index]


def test_a_hot_model_spreads_until_its_copies_share_the_work_and_a_cold_one_does_not() -> None:
    """20 ms per request on each of 6 instances, in steps of 20 ms. Loads take 50 steps."""
    for per_step, least, most in ((0.04, 1, 1), (2.5, 3, 5)):
        outstanding, left_steps, owed = [0.0] * 6, {0: 0}, 0.0
        for _ in range(2000):
            owed += per_step
            while owed >= 1:
                owed -= 1
                views = [
                    InstanceView(
                        f"i-{index}",
                        int(outstanding[index]),
                        20.0,
                        20.0 * left_steps.get(index, 50),
                        index in left_steps,
                    )
                    for index in range(6)
                ]
                choice = choose_for_model("hot", views, per_step * 3000)
                outstanding[choice.index] += 1
                for load in (choice.index, choice.copy_to):
                    if load is not None:
                        left_steps.setdefault(load, 50)
            left_steps = {index: max(steps - 1, 0) for index, steps in left_steps.items()}
            outstanding = [
                max(count - 1, 0.0) if left_steps.get(index) == 0 else count
                for index, count in enumerate(outstanding)
            ]
        assert least <= len(left_steps) <= most
        assert max(outstanding) < 10


some_views = st.lists(
    st.builds(
        InstanceView,
        st.uuids().map(str),
        st.integers(0, 100),
        st.floats(0.1, 1000),
        st.sampled_from((0.0, 5.0, 300.0, 60_000.0)),
        st.booleans(),
        st.sampled_from((0.0, 40.0, 9000.0)),
    ),
    min_size=1,
    max_size=9,
    unique_by=lambda view: view.name,
)


@given(views=some_views, expected=st.floats(0, 1e6), data=st.data())
def test_any_choice_is_valid_and_the_same_whatever_the_order(
    views: list[InstanceView], expected: float, data: st.DataObject
) -> None:
    def named(views: list[InstanceView], choice: ModelChoice) -> tuple[object, ...]:
        copy = None if choice.copy_to is None else views[choice.copy_to].name
        return views[choice.index].name, choice.loads, copy, choice.reason

    choice = choose_for_model("m", views, expected)
    chosen = views[choice.index]
    assert choice.loads != chosen.is_home
    if choice.copy_to is not None:
        assert not views[choice.copy_to].is_home
        assert chosen.is_home
        assert not any(view.is_home and view.load_ms for view in views)
    if not any(view.is_home for view in views):
        assert chosen.cost_ms <= 1.2 * min(view.cost_ms for view in views)
    shuffled = data.draw(st.permutations(views))
    assert named(shuffled, choose_for_model("m", shuffled, expected)) == named(views, choice)
