"""The link, the questions, and what the answers mean; then the whole of it without a clock."""

import base64
import hashlib
import json
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import pytest

from caretway.accounts.account import DEAD_S, Account, dump, load
from caretway.accounts.login import (
    CLIENT_ID,
    EXCHANGE,
    MAX_QUESTIONS,
    OAUTH,
    REFRESH,
    TOKEN,
    Polling,
    invite,
    offers,
    pause,
    read_tokens,
    renew,
    sign_in,
)
from caretway.core.errors import ErrorKind, GatewayError
from unit.accounts.token_endpoint import jwt

ALL = [EXCHANGE, OAUTH, TOKEN, REFRESH]
CAMEL = json.dumps({"accessToken": "new", "refreshToken": "next"}).encode()
SNAKE = json.dumps({"access_token": "new", "id_token": "i", "shouldLogout": False}).encode()
LOGOUT = json.dumps({"access_token": "", "id_token": "", "shouldLogout": True}).encode()
NOTHING = json.dumps({"access_token": "", "id_token": "", "shouldLogout": False}).encode()

Answers = dict[str, tuple[int, bytes]]


class Ways:
    """The endpoints: those that are not named refuse."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def call(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        self.asked.append(path)
        return self.answers.get(path, (401, b"Invalid User API Key"))


async def renewed(answers: Answers, account: Account) -> tuple[Account, list[str]]:
    ways = Ways(answers)
    return await renew(account, ways.call, lambda: 50.0, "hint"), ways.asked


def test_what_each_way_is_sent() -> None:
    bearer = {"authorization": "Bearer r", "content-type": "application/json"}
    plain = {"content-type": "application/json"}
    sent = [(offer.way.path, *offer.request()) for offer in offers(Account(refresh_token="r"))]
    grant = {"grant_type": "refresh_token", "client_id": CLIENT_ID, "refresh_token": "r"}
    assert [(path, headers, json.loads(body)) for path, headers, body in sent] == [
        (EXCHANGE, bearer, {}),
        (OAUTH, plain, grant),
        (TOKEN, plain, {"refreshToken": "r"}),
        (REFRESH, bearer, {}),
    ]


WORKING = [(EXCHANGE, CAMEL, "next"), (OAUTH, SNAKE, "r"), (TOKEN, CAMEL, "next"), (REFRESH, CAMEL, "next")]


@pytest.mark.parametrize(("path", "answer", "refresh"), WORKING)
async def test_each_way_is_tried_once_until_one_works(path: str, answer: bytes, refresh: str) -> None:
    account, asked = await renewed({path: (200, answer)}, Account("old", "r", who="ada"))
    assert asked == ALL[: ALL.index(path) + 1]
    assert account == Account("new", refresh, "", 50.0, "ada", renewed_by=path)
    again, asked = await renewed({path: (200, answer)}, account)
    assert asked == [path], "the one that worked is the first the next time"
    assert again.renewed_by == path


REFUSALS: list[tuple[str, Answers]] = [
    ("all say no", {}),
    ("the editor's way says it in a 200", {OAUTH: (200, LOGOUT)}),
    ("pages that do not exist", dict.fromkeys(ALL, (404, b"<html>"))),
    ("other words for no", {EXCHANGE: (400, b""), OAUTH: (403, b""), TOKEN: (405, b""), REFRESH: (410, b"")}),
]


@pytest.mark.parametrize(("name", "answers"), REFUSALS, ids=[row[0] for row in REFUSALS])
async def test_refused_everywhere_is_the_end(name: str, answers: Answers) -> None:
    ways = Ways(answers)
    with pytest.raises(GatewayError) as over:
        await renew(Account("old", "r"), ways.call, lambda: 50.0, "hint")
    assert ways.asked == ALL
    assert (over.value.kind, over.value.hint) == (ErrorKind.SIGNED_OUT, "hint")


BROKEN: list[tuple[tuple[int, bytes], ErrorKind]] = [
    ((503, b""), ErrorKind.UPSTREAM_DOWN),
    ((200, NOTHING), ErrorKind.UPSTREAM_PROTOCOL),
    ((200, b"<html>"), ErrorKind.UPSTREAM_PROTOCOL),
]


@pytest.mark.parametrize(("answer", "kind"), BROKEN)
@pytest.mark.parametrize("path", ALL)
async def test_one_broken_way_does_not_end_a_login(path: str, answer: tuple[int, bytes], kind: ErrorKind) -> None:
    ways = Ways({path: answer})
    with pytest.raises(GatewayError) as failed:
        await renew(Account("old", "r"), ways.call, lambda: 50.0, "hint")
    assert (failed.value.kind, ways.asked) == (kind, ALL)
    other = next(one for one in ALL if one != path)
    account, _ = await renewed({path: answer, other: (200, CAMEL)}, Account("old", "r"))
    assert account.access_token == "new"


async def test_a_limit_of_renewals_is_not_tried_around() -> None:
    ways = Ways({EXCHANGE: (429, b"")})
    with pytest.raises(GatewayError) as failed:
        await renew(Account("old", "r"), ways.call, lambda: 50.0, "hint")
    assert (failed.value.kind, ways.asked) == (ErrorKind.RATE_LIMITED, [EXCHANGE])


async def test_a_key_helps_out_and_the_dead_refresh_token_goes() -> None:
    async def key_only(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        return (200, CAMEL) if headers.get("authorization") == "Bearer k" else (401, b"")

    account = await renew(Account("old", "r", "k"), key_only, lambda: 50.0, "hint")
    assert account == Account("new", "", "k", 50.0)

    async def one_is_down(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        return (503, b"") if path == OAUTH else await key_only(method, path, headers, body)

    account = await renew(Account("old", "r", "k"), one_is_down, lambda: 50.0, "hint")
    assert account.refresh_token == "r", "nobody knows whether it is dead"


async def test_one_token_in_both_places_is_renewed_with_the_newest() -> None:
    first, second, third = (jwt(type="session", n=n) for n in range(3))
    given = {first: second, second: third}

    async def editor(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        asked.append(path)
        new = given.get(json.loads(body).get("refresh_token", ""))
        if path != OAUTH or new is None:
            return 401, b""
        return 200, json.dumps({"access_token": new, "shouldLogout": False}).encode()

    asked: list[str] = []
    account = await renew(Account(first, first), editor, lambda: 50.0, "hint")
    assert (account.access_token, account.refresh_token) == (second, first)
    asked.clear()
    del given[first]  # it has expired meanwhile
    account = await renew(account, editor, lambda: 60.0, "hint")
    assert (account.access_token, account.refresh_token, asked) == (third, second, [OAUTH])


def test_a_dead_refresh_token_is_remembered_for_a_while_and_on_disk() -> None:
    account = Account("a", "r").marked_dead(1000.0)
    (stored,) = load(dump({"u": account})).values()
    assert stored == account and stored.dead(1000.0) and stored.dead(999 + DEAD_S) and not stored.dead(1001 + DEAD_S)
    assert not stored.dead(100.0), "a clock that was set back holds nobody up"
    assert "r" not in stored.refused
    again = load(dump({"u": account}).replace('"r"', '"another"'))["u"]
    assert not again.dead(1000.0), "another refresh token is another login"
    assert not Account(api_key="k").marked_dead(1000.0).dead(1000.0), "a key may be good again at once"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"[" * 5000, b'{"accessToken": 3}', b'{"accessToken": ""}', b"\xff"]
)
def test_answers_without_a_token(body: bytes) -> None:
    assert read_tokens(body) is None


KEY, LOGIN = Account(api_key="k"), Account("a", "r")


@pytest.mark.parametrize(
    ("account", "status"), [(KEY, 200), (KEY, 403), (KEY, 404), (KEY, 503), (LOGIN, 200), (LOGIN, 403), (LOGIN, 503)]
)
async def test_a_web_page_is_no_word_of_cursor(account: Account, status: int) -> None:
    """A company's gateway, or another server: the credentials may be good."""

    async def call(*_: object) -> tuple[int, bytes]:
        return status, b"<!DOCTYPE html><html>Blocked</html>"

    with pytest.raises(GatewayError, match="a web page") as caught:
        await renew(account, call, lambda: 0.0, "")
    assert caught.value.kind is ErrorKind.UPSTREAM_PROTOCOL and "--agent-url" in caught.value.hint


INVITATION = invite(bytes(range(32)), "uuid-1")
TOKENS = json.dumps({"accessToken": "a", "refreshToken": "r", "authId": "user|1"}).encode()


def test_the_link_holds_the_challenge_and_not_the_verifier() -> None:
    link = urlsplit(INVITATION.link("https://cursor.example/"))
    assert link.geturl().startswith("https://cursor.example/loginDeepControl?")
    assert INVITATION.verifier not in link.query
    digest = hashlib.sha256(INVITATION.verifier.encode()).digest()
    assert parse_qs(link.query) == {
        "challenge": [base64.urlsafe_b64encode(digest).decode().rstrip("=")],
        "uuid": ["uuid-1"],
        "mode": ["login"],
        "redirectTarget": ["cli"],
    }


def test_too_little_randomness() -> None:
    with pytest.raises(ValueError, match="randomness"):
        invite(b"short", "u")


def test_pauses_grow_to_a_limit() -> None:
    pauses = [pause(n) for n in range(20)]
    assert pauses[:2] == [1.0, 1.2] and pauses == sorted(pauses) and pauses[-1] == 10.0
    assert pause(10**6) == 10.0


def test_an_older_service_is_asked_in_the_older_way() -> None:
    polling = Polling(INVITATION)
    assert (polling.question().method, polling.question().path) == ("POST", "/auth/poll")
    assert polling.receive(404, b"no such route") == 0.0
    question = polling.question()
    assert question.method == "GET" and question.body == b""
    assert parse_qs(urlsplit(question.path).query) == {"uuid": ["uuid-1"], "verifier": [INVITATION.verifier]}
    assert polling.receive(404, b"whatever it says") == pause(1)
    assert polling.question().method == "GET"


def test_waiting_has_an_end() -> None:
    polling = Polling(INVITATION)
    for _ in range(MAX_QUESTIONS - 1):
        polling.receive(404, b"Not found")
    with pytest.raises(GatewayError) as over:
        polling.receive(404, b"Not found")
    assert over.value.kind is ErrorKind.TIMEOUT and "caretway login" in over.value.hint


@pytest.mark.parametrize("answer", [(500, b""), (200, b"{}"), (200, b"not JSON"), (429, b"")])
def test_three_failures_in_a_row_are_the_end(answer: tuple[int, bytes]) -> None:
    polling = Polling(INVITATION)
    polling.receive(*answer)
    polling.receive(*answer)
    polling.receive(404, b"Not found")
    polling.receive(*answer)
    polling.receive(*answer)
    with pytest.raises(GatewayError) as over:
        polling.receive(*answer)
    assert over.value.kind is ErrorKind.UPSTREAM_DOWN


FINAL = [(400, "understand"), (401, "refused"), (403, "allow"), (410, "no longer valid")]


@pytest.mark.parametrize(("status", "said"), FINAL)
@pytest.mark.parametrize("older", [False, True])
def test_final_answers_end_it_at_once_in_words(status: int, said: str, older: bool) -> None:
    polling = Polling(INVITATION)
    if older or status == 400:
        assert polling.receive(404 if older else 400, b"no such route") == 0.0, "the older way of asking is tried first"
        assert polling.question().method == "GET"
    with pytest.raises(GatewayError, match=said) as over:
        polling.receive(status, b"whatever")
    assert over.value.kind is ErrorKind.SIGNED_OUT
    assert str(status) in over.value.message and "`" in over.value.hint, "it names what to type"


@pytest.mark.parametrize("status", [400, 405, 415, 501])
def test_a_service_that_takes_no_post_is_asked_with_get(status: int) -> None:
    polling = Polling(INVITATION)
    assert polling.receive(status, b"") == 0.0
    assert polling.question().method == "GET"


NO_ANSWERS = [
    (
        GatewayError(ErrorKind.UPSTREAM_DOWN, "cannot connect to a:1: refused", hint="Check the network."),
        "Cursor could not be asked about the sign-in: cannot connect to a:1: refused.",
        "Check the network. Then run `caretway login` again.",
    ),
    (
        GatewayError(ErrorKind.TIMEOUT, "Cursor did not answer /auth/poll?verifier=secret within 30 s", hint="Wait."),
        "Cursor could not be asked about the sign-in: it did not answer in time.",
        "Check the network, then run `caretway login` again.",
    ),
    (
        GatewayError(ErrorKind.UPSTREAM_DOWN, "lost /auth/poll?verifier=secret"),
        "Cursor could not be asked about the sign-in: the connection broke.",
        "Check the network, then run `caretway login` again.",
    ),
]


@pytest.mark.parametrize(("failure", "message", "hint"), NO_ANSWERS)
async def test_without_a_network_it_says_why_and_what_to_type(failure: GatewayError, message: str, hint: str) -> None:
    async def call(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        raise failure

    async def sleep(seconds: float) -> None:
        pass

    with pytest.raises(GatewayError) as raised:
        await sign_in(INVITATION, call, sleep, lambda: 77.0)
    assert (raised.value.kind, raised.value.message, raised.value.hint) == (
        ErrorKind.UPSTREAM_DOWN,
        message,
        hint,
    )


async def test_the_whole_of_it() -> None:
    answers: list[tuple[int, bytes] | GatewayError] = [
        (404, b"Not found"),
        GatewayError(ErrorKind.TIMEOUT, "Cursor did not answer /auth/poll?verifier=secret"),
        (404, b"Not found"),
        (200, TOKENS),
    ]
    slept: list[float] = []

    async def call(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        answer = answers.pop(0)
        if isinstance(answer, GatewayError):
            raise answer
        return answer

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    account = await sign_in(INVITATION, call, sleep, lambda: 77.0)
    assert account == Account("a", "r", received_at=77.0, who="user|1")
    assert slept == [pause(0), pause(1), pause(2)]
