"""How a path finds its row, in a small table: prefixes, parameters, methods, and the precedence among rows."""

import pytest

from caretway.api.route_table import ELSEWHERE, HttpCall, Matched, Refused, Route, RouteTable, canonical, paths_of
from caretway.api.routes import route_table
from caretway.core.errors import ErrorKind
from caretway.dialects import Operation
from caretway.dialects.registry import dialects
from caretway.server.exchange import HttpRequest

HINTED = route_table(dialects())


def hint(path: str, method: str = "POST", host: str = "box:8", scheme: str = "http") -> str:
    decision = HINTED.resolve(HttpRequest(method, path, {"host": host} if host else {}, scheme))
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
                decision = HINTED.resolve(HttpRequest("POST", words[at + 1], {}))
                assert not isinstance(decision, Refused), sentence


@pytest.mark.parametrize("path", ELSEWHERE)
def test_what_is_elsewhere_is_not_served_here(path: str) -> None:
    for spelled in (path, f"/v1{path}", f"/v1{path}/more"):
        assert hint(spelled) == ELSEWHERE[path]
    assert not any(f"{row.path}/".startswith(f"{path}/") for row in HINTED.routes), "a new row wants this one gone"


def test_the_base_url_is_the_one_that_was_used() -> None:
    assert "https://gateway.example/v1 for" in hint("/x", host="gateway.example", scheme="https")
    assert "http://HOST:PORT/v1 for" in hint("/x", host="")
    assert "http://HOST:PORT/v1 for" in hint("/x", host="a" * 1000)


async def nobody(call: HttpCall) -> None:
    raise AssertionError("a table calls nobody")


def row(path: str, *methods: str, prefixed: bool = True, dialect: str = "") -> Route:
    return Route(path, {name: Operation(name.lower(), "", "") for name in methods}, nobody, prefixed, dialect=dialect)


TABLE = RouteTable(
    [
        row("/things", "GET", "POST", dialect="things"),
        row("/things/new", "GET"),
        row("/things/{id}", "GET", "DELETE"),
        row("/things/{id}/parts/{part}", "GET"),
        row("/docs/{name:path}", "GET"),
        row("/bare", "GET", prefixed=False),
    ]
)


def found(method: str, path: str) -> tuple[str, dict[str, str]] | ErrorKind:
    decision = TABLE.resolve(HttpRequest(method, path, {}))
    if isinstance(decision, Refused):
        return decision.error.kind
    return decision.route.path, dict(decision.params)


NOT_FOUND, WRONG_METHOD = ErrorKind.NOT_FOUND, ErrorKind.WRONG_METHOD
FOUND = [
    ("GET", "/v1/things", ("/things", {})),
    ("POST", "/things", ("/things", {})),
    ("DELETE", "/things", WRONG_METHOD),
    ("GET", "/things/new", ("/things/new", {})),
    ("DELETE", "/things/new", WRONG_METHOD),
    ("GET", "/things/7", ("/things/{id}", {"id": "7"})),
    ("HEAD", "/v1/things/7", ("/things/{id}", {"id": "7"})),
    ("OPTIONS", "/v1/things/7", ("/things/{id}", {"id": "7"})),
    ("POST", "/v1/things/7", WRONG_METHOD),
    ("GET", "/things/7/parts/8", ("/things/{id}/parts/{part}", {"id": "7", "part": "8"})),
    ("GET", "/things/7/parts", NOT_FOUND),
    ("GET", "/things/7/parts/8/9", NOT_FOUND),
    ("GET", "/v1/docs/a/b/c", ("/docs/{name:path}", {"name": "a/b/c"})),
    ("GET", "/docs", NOT_FOUND),
    ("GET", "/bare", ("/bare", {})),
    ("GET", "/v1/bare", NOT_FOUND),
    ("GET", "/v2/things", NOT_FOUND),
    ("GET", "/THINGS", NOT_FOUND),
    ("get", "/things", WRONG_METHOD),
]


@pytest.mark.parametrize(("method", "path", "expected"), FOUND)
def test_which_row(method: str, path: str, expected: object) -> None:
    assert found(method, path) == expected


def test_where_a_row_is_served() -> None:
    assert paths_of(row("/things", "GET")) == ("/v1/things", "/things")
    assert paths_of(row("/", "GET")) == ("/", "/v1")
    assert paths_of(row("/bare", "GET", prefixed=False)) == ("/bare",)


def test_an_exact_row_is_found_without_a_new_object() -> None:
    decision = TABLE.resolve(HttpRequest("POST", "/v1/things", {}))
    assert isinstance(decision, Matched)
    assert TABLE.resolve(HttpRequest("POST", "/v1/things", {})) is decision


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/", "/"),
        ("//", "/"),
        ("/v1", "/v1"),
        ("/v1/", "/v1"),
        ("/v1/v1", "/v1"),
        ("/v1/v1x", "/v1/v1x"),
        ("/v1v1/models", "/v1v1/models"),
        ("/v1//v1///models//", "/v1/models"),
        ("/models/v1/v1", "/models/v1/v1"),
        ("/../v1", "/../v1"),
    ],
)
def test_what_a_path_means(path: str, meant: str) -> None:
    assert canonical(path) == meant
