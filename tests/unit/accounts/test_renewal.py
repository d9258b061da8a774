"""Four ways to renew a login, each tried once; what each is sent, and what its answers mean."""

import json
from collections.abc import Mapping

import pytest

from caretway.accounts.account import DEAD_S, Account, dump, load
from caretway.accounts.renewal import CLIENT_ID, EXCHANGE, OAUTH, REFRESH, TOKEN, offers, read_tokens, renew
from caretway.core.errors import ErrorKind, GatewayError
from unit.accounts.desk import jwt

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
