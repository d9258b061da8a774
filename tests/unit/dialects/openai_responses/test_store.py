"""The store of given responses: bounded by number and by size, least recently used first; and the lookups over it."""

from typing import Any

import msgspec
import pytest

from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Event, TextDelta, TurnEnded, TurnStarted
from caretway.core.fold import fold
from caretway.dialects import Dialect, ResponseMeta
from caretway.dialects.openai_responses import ResponseStore, openai_responses
from caretway.dialects.openai_responses.store import MAX_READ_VALUES, StoreReader


def keep(store: ResponseStore, name: str, *, previous: str | None = None, filler: int = 0) -> None:
    output = [{"id": f"msg_{name}", "type": "message", "text": "x" * filler}]
    store.keep(name, msgspec.json.encode({"id": name, "output": output}), [{"role": "user"}], output, previous)


def test_the_least_recently_used_goes_first() -> None:
    store = ResponseStore(max_entries=2)
    keep(store, "a")
    keep(store, "b")
    assert store.find("a") is not None
    keep(store, "c")
    assert [store.find(name) is not None for name in "abc"] == [True, False, True]
    assert StoreReader(store).item("msg_b") is None
    assert StoreReader(store).item("msg_c") is not None


def test_bytes_are_bounded_and_accounted_for() -> None:
    store = ResponseStore(max_bytes=1000)
    for n in range(20):
        keep(store, f"r{n}", filler=200)
        assert store.bytes <= 1000
        assert store.find(f"r{n}") is not None
    assert 1 < len(store) < 5
    keep(store, "huge", filler=2000)
    assert store.find("huge") is None
    assert len(store) > 1
    for n in range(20):
        store.discard(f"r{n}")
    assert (store.bytes, len(store)) == (0, 0)


def test_keeping_the_same_again_replaces_it() -> None:
    store = ResponseStore()
    keep(store, "a", filler=10)
    before = store.bytes
    keep(store, "a", filler=10)
    assert (store.bytes, len(store)) == (before, 1)


def test_a_chain_is_whole_or_nothing() -> None:
    store = ResponseStore()
    keep(store, "a")
    keep(store, "b", previous="a")
    keep(store, "c", previous="b")
    assert [stored.id for stored in store.chain("c") or ()] == ["a", "b", "c"]
    store.discard("b")
    assert store.chain("c") is None
    assert store.chain("a") is not None


def test_using_a_chain_keeps_all_of_it_young() -> None:
    store = ResponseStore(max_entries=3)
    keep(store, "a")
    keep(store, "b", previous="a")
    keep(store, "x")
    assert store.chain("b") is not None
    keep(store, "y")
    assert store.chain("b") is not None
    assert store.find("x") is None


def test_what_one_request_reads_is_bounded() -> None:
    store = ResponseStore()
    keep(store, "a", filler=500)
    keep(store, "b", previous="a", filler=500)
    assert len(StoreReader(store).chain("b") or ()) == 4
    roomy = StoreReader(store, max_bytes=1_000)
    for _ in range(100):  # read once
        assert roomy.item("msg_a") is not None
    for tight in (roomy, StoreReader(store, max_values=20)):
        with pytest.raises(GatewayError) as caught:
            tight.chain("b")
        assert (caught.value.kind, caught.value.code) == (ErrorKind.TOO_LARGE, "too_much_history")


# ---- lookups

EVENTS: list[Event] = [TurnStarted(), TextDelta("one"), TurnEnded()]


@pytest.fixture
def dialect() -> Dialect:
    made = openai_responses(ResponseStore())
    asked = made.decode({"model": "m", "input": "first", "metadata": {"k": "v"}}, {})
    made.encoder(asked, ResponseMeta("1", 7, "m")).feed(EVENTS)
    again = made.decode({"model": "m", "input": "second", "previous_response_id": "resp_1"}, {})
    made.render(fold(EVENTS), again, ResponseMeta("2", 8, "m"))
    return made


def run(dialect: Dialect, operation: str, name: str) -> Any:
    return msgspec.json.decode(dialect.lookups[operation]({"id": name}, {}, None))


def test_a_stored_response_is_found_listed_and_forgotten(dialect: Dialect) -> None:
    found = run(dialect, "getResponse", "resp_1")
    assert (found["id"], found["status"], found["metadata"]) == ("resp_1", "completed", {"k": "v"})
    assert found["output"][0]["content"][0]["text"] == "one"
    listed = run(dialect, "getInput", "resp_2")
    texts = [item["content"][0]["text"] for item in listed["data"]]
    assert texts == ["second", "one", "first"]
    assert listed["first_id"] == listed["data"][0]["id"]
    assert listed["last_id"] == listed["data"][-1]["id"]
    assert listed["has_more"] is False
    assert run(dialect, "deleteResponse", "resp_1") == {"id": "resp_1", "object": "response", "deleted": True}
    with pytest.raises(GatewayError) as caught:
        run(dialect, "getResponse", "resp_1")
    assert caught.value.kind is ErrorKind.NOT_FOUND


def test_a_list_holds_what_is_left(dialect: Dialect) -> None:
    run(dialect, "deleteResponse", "resp_1")
    (item,) = run(dialect, "getInput", "resp_2")["data"]
    assert item["content"][0]["text"] == "second"


def test_a_list_is_bounded_like_a_request() -> None:
    store = ResponseStore()
    made = openai_responses(store)
    for name, previous in (("a", None), ("b", "a"), ("c", "b")):
        numbers = {"id": f"msg_{name}", "type": "message", "logprobs": [0] * (MAX_READ_VALUES // 3)}
        store.keep(
            name, msgspec.json.encode({"id": name, "output": [numbers]}), [{"role": "user"}], [numbers], previous
        )
    assert len(run(made, "getInput", "b")["data"]) == 3
    with pytest.raises(GatewayError) as caught:
        run(made, "getInput", "c")
    assert (caught.value.kind, caught.value.code) == (ErrorKind.TOO_LARGE, "too_much_history")
