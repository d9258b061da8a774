"""The link, the questions, and what the answers mean; then the whole of it without a clock."""

import base64
import hashlib
import json
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import pytest

from caretway.accounts.account import Account
from caretway.accounts.login import MAX_QUESTIONS, Polling, invite, pause, sign_in
from caretway.core.errors import ErrorKind, GatewayError

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
    assert polling.heard(404, b"no such route") == 0.0
    question = polling.question()
    assert question.method == "GET" and question.body == b""
    assert parse_qs(urlsplit(question.path).query) == {"uuid": ["uuid-1"], "verifier": [INVITATION.verifier]}
    assert polling.heard(404, b"whatever it says") == pause(1)
    assert polling.question().method == "GET"


def test_waiting_has_an_end() -> None:
    polling = Polling(INVITATION)
    for _ in range(MAX_QUESTIONS - 1):
        polling.heard(404, b"Not found")
    with pytest.raises(GatewayError) as over:
        polling.heard(404, b"Not found")
    assert over.value.kind is ErrorKind.TIMEOUT and "caretway login" in over.value.hint


@pytest.mark.parametrize("answer", [(500, b""), (200, b"{}"), (200, b"not JSON"), (429, b"")])
def test_three_failures_in_a_row_are_the_end(answer: tuple[int, bytes]) -> None:
    polling = Polling(INVITATION)
    polling.heard(*answer)
    polling.heard(*answer)
    polling.heard(404, b"Not found")
    polling.heard(*answer)
    polling.heard(*answer)
    with pytest.raises(GatewayError) as over:
        polling.heard(*answer)
    assert over.value.kind is ErrorKind.UPSTREAM_DOWN


FINAL = [(400, "understand"), (401, "refused"), (403, "allow"), (410, "no longer valid")]


@pytest.mark.parametrize(("status", "said"), FINAL)
@pytest.mark.parametrize("older", [False, True])
def test_final_answers_end_it_at_once_in_words(status: int, said: str, older: bool) -> None:
    polling = Polling(INVITATION)
    if older or status == 400:
        assert polling.heard(404 if older else 400, b"no such route") == 0.0, "the older way of asking is tried first"
        assert polling.question().method == "GET"
    with pytest.raises(GatewayError, match=said) as over:
        polling.heard(status, b"whatever")
    assert over.value.kind is ErrorKind.SIGNED_OUT
    assert str(status) in over.value.message and "`" in over.value.hint, "it names what to type"


@pytest.mark.parametrize("status", [400, 405, 415, 501])
def test_a_service_that_takes_no_post_is_asked_with_get(status: int) -> None:
    polling = Polling(INVITATION)
    assert polling.heard(status, b"") == 0.0
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

    with pytest.raises(GatewayError) as told:
        await sign_in(INVITATION, call, sleep, lambda: 77.0)
    assert (told.value.kind, told.value.message, told.value.hint) == (ErrorKind.UPSTREAM_DOWN, message, hint)


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
