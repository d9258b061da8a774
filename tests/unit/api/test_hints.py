"""What a wrong path is told: what is wrong, and what to type."""

import pytest

from caretway.api.hints import ELSEWHERE
from caretway.api.route_table import Refused
from caretway.api.routes import route_table
from caretway.core.errors import ErrorKind
from caretway.dialects.registry import dialects
from caretway.server.exchange import HttpRequest

TABLE = route_table(dialects())


def hint(path: str, method: str = "POST", host: str = "box:8", scheme: str = "http") -> str:
    decision = TABLE.resolve(HttpRequest(method, path, {"host": host} if host else {}, scheme))
    assert isinstance(decision, Refused), path
    assert decision.error.kind is ErrorKind.NOT_FOUND
    return decision.error.hint


BASES = "http://box:8/v1 for OpenAI's clients, http://box:8 for Anthropic's"
HINTS = [
    ("/v1/embeddings", ELSEWHERE["/embeddings"]),
    ("/embeddings", ELSEWHERE["/embeddings"]),
    ("/v1/v1/embeddings/", ELSEWHERE["/embeddings"]),
    ("/v1/complete", "The old Text Completions API is not served. Use POST /v1/messages."),
    ("/v1/images/generations", ELSEWHERE["/images"]),
    ("/v1/files/file_1/content", "Files are not kept here. Send their content in the message."),
    ("/v1/messages/batches", "Batches are not served. Send the requests one by one to POST /v1/messages."),
    ("/api/chat", "This is not Ollama's API. Choose an OpenAI-compatible provider in the client."),
    ("/v1beta/models/x:generateContent", ELSEWHERE["/v1beta"]),
    (
        "/openai/v1/chat/completions",
        f"Did you mean /v1/chat/completions? Then the client's base URL is wrong. It is {BASES}.",
    ),
    (
        "/v1/chat/completions/chat/completions",
        f"Did you mean /v1/chat/completions? Then the client's base URL is wrong. It is {BASES}.",
    ),
    ("/v1/messages/v1/messages", f"Did you mean /v1/messages? Then the client's base URL is wrong. It is {BASES}."),
    ("/v1/chat/completion", "Did you mean /v1/chat/completions?"),
    ("/message", "Did you mean /v1/messages?"),
    ("/v1/response", "Did you mean /v1/responses?"),
    ("/nothing", f"The base URL is {BASES}. GET / lists what is served."),
    ("/v1/" + "x" * 5000, f"The base URL is {BASES}. GET / lists what is served."),
]


@pytest.mark.parametrize(("path", "said"), HINTS, ids=[row[0][:40] for row in HINTS])
def test_hints(path: str, said: str) -> None:
    assert hint(path) == said


def test_nobody_who_is_there_is_sent_there() -> None:
    """Every path that a hint names is served with the method it names."""
    for sentence in ELSEWHERE.values():
        words = sentence.rstrip(".").split()
        for at, word in enumerate(words):
            if word == "POST":
                decision = TABLE.resolve(HttpRequest("POST", words[at + 1], {}))
                assert not isinstance(decision, Refused), sentence


@pytest.mark.parametrize("path", ELSEWHERE)
def test_what_is_elsewhere_is_not_served_here(path: str) -> None:
    for spelled in (path, f"/v1{path}", f"/v1{path}/more"):
        assert hint(spelled) == ELSEWHERE[path]
    assert not any(f"{row.path}/".startswith(f"{path}/") for row in TABLE.routes), "a new row wants this one gone"


def test_the_base_url_is_the_one_that_was_used() -> None:
    assert "https://gateway.example/v1 for" in hint("/x", host="gateway.example", scheme="https")
    assert "http://HOST:PORT/v1 for" in hint("/x", host="")
    assert "http://HOST:PORT/v1 for" in hint("/x", host="a" * 1000)
