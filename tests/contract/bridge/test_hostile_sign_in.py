"""Hostile servers that want a sign-in: what each tries, and the sentence that it ends with. Another server listens
beside each of them, and must see neither a token nor a code."""

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.client.auth import AuthorizationCodeResult
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from caretway.accounts import store
from caretway.mcp import oauth
from caretway.mcp.definitions import OAuthClient, Remote, ServerDefinition
from caretway.mcp.oauth import MAX_RENEWALS, ServerSignIn, SignInFailed, misplaced, sign_in
from caretway.mcp.sign_ins import McpSignIn, open_sign_in
from contract.bridge.oauth_server import SECRET, serving
from contract.bridge.servers import bridged, until

Answer = Callable[["Evil"], Any]


class Evil:
    """A server that is honest where `answers` does not say otherwise. Path -> what it answers."""

    def __init__(self, port: int, other: str, answers: dict[str, Answer]) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self.url = f"{self.origin}/mcp"
        self.other = other
        self.tokens = 0
        self._answers = answers
        self._honest: dict[str, Answer] = {
            "/.well-known/oauth-protected-resource/mcp": resource(),
            "/.well-known/oauth-authorization-server": metadata(),
            "/register": lambda evil: JSONResponse(
                {"client_id": "c", "redirect_uris": ["http://127.0.0.1:1/callback"]}
            ),
            "/token": token(),
            "/mcp": lambda evil: Response(status_code=401),
        }
        self.app = Starlette(routes=[Route("/{path:path}", self.answer, methods=["GET", "POST"])])

    async def answer(self, request: Request) -> Any:
        path = request.url.path
        if path == "/token":
            self.tokens += 1
        answer = (self._honest | self._answers).get(path)
        return answer(self) if answer is not None else Response(status_code=404)


def resource(of: str = "", servers: str = "") -> Answer:
    return lambda evil: JSONResponse(
        {"resource": of.format(evil) or evil.url, "authorization_servers": [servers.format(evil) or evil.origin]}
    )


def metadata(**more: str) -> Answer:
    def answer(evil: Evil) -> Response:
        told = {
            "issuer": evil.origin,
            "authorization_endpoint": f"{evil.origin}/authorize",
            "token_endpoint": f"{evil.origin}/token",
            "registration_endpoint": f"{evil.origin}/register",
        }
        return JSONResponse(told | {name: value.format(evil) for name, value in more.items()})

    return answer


def token(access: str = f"{SECRET}-access", **more: Any) -> Answer:
    told = {"access_token": access, "refresh_token": f"{SECRET}-refresh", "token_type": "Bearer", "expires_in": 60}
    return lambda evil: JSONResponse(told | more)


def redirect(path: str) -> Answer:
    return lambda evil: Response(status_code=307, headers={"location": f"{evil.other}{path}"})


def raw(text: str, status: int = 200, **headers: str) -> Answer:
    return lambda evil: Response(text, status, {name.replace("_", "-"): value for name, value in headers.items()})


async def _for_ever() -> AsyncIterator[bytes]:
    while True:
        yield b" " * 65536
        await asyncio.sleep(0)


async def _never() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.sleep(600)


def challenge(where: str) -> Answer:
    return lambda evil: Response(
        status_code=401, headers={"www-authenticate": f'Bearer resource_metadata="{where.format(evil)}"'}
    )


class Somebody:
    redirect = "http://127.0.0.1:1/callback"
    state = ""

    async def visit(self, link: str, host: str) -> None:
        self.state = parse_qs(urlsplit(link).query)["state"][0]

    async def answer(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=f"{SECRET}-code", state=self.state)


@asynccontextmanager
async def evil(answers: dict[str, Answer]) -> AsyncIterator[tuple[Evil, list[str]]]:
    """The server, and all that another one was sent meanwhile."""
    seen: list[str] = []

    async def note(request: Request) -> Response:
        seen.append(f"{request.url} {dict(request.headers)} {(await request.body()).decode()}")
        return Response(status_code=404)

    def innocent(port: int) -> Any:
        return Starlette(routes=[Route("/{path:path}", note, methods=["GET", "POST"])])

    async with serving(innocent) as other:
        made: list[Evil] = []

        def app(port: int) -> Any:
            made.append(Evil(port, f"http://127.0.0.1:{other}", answers))
            return made[0].app

        async with serving(app):
            yield made[0], seen


HOSTILE: Final[dict[str, tuple[dict[str, Answer], str]]] = {
    "the token endpoint redirects elsewhere": (
        {"/token": redirect("/token")},
        "answered HTTP 307, a redirect to {0.other}, which is not followed",
    ),
    "registration redirects elsewhere": (
        {"/register": redirect("/register")},
        "answered HTTP 307, a redirect to {0.other}, which is not followed",
    ),
    "metadata about another server": (
        {"/.well-known/oauth-protected-resource/mcp": resource(of="{0.other}/mcp")},
        "Protected resource {0.other}/mcp does not match expected {0.url}",
    ),
    "metadata at another server": (
        {"/mcp": challenge("{0.other}/metadata")},
        "its metadata is to be at {0.other}, another server's address",
    ),
    "metadata at an address that is none": ({"/mcp": challenge("http://[::1")}, ""),
    "metadata that names another issuer": (
        {"/.well-known/oauth-authorization-server": metadata(issuer="{0.other}")},
        "issuer mismatch",
    ),
    "a sign-in at another server, whose code it wants": (
        {"/.well-known/oauth-authorization-server": metadata(authorization_endpoint="{0.other}/authorize")},
        "it wants a sign-in at {0.other}, which is neither its own address nor its issuer's",
    ),
    "a giant token": ({"/token": token("x" * 20_000)}, "it gave a token of 20000 characters; at most 12000 are taken"),
    "an endless token": ({"/token": lambda evil: StreamingResponse(_for_ever())}, "sends more than 131072 bytes"),
    "a token that is a second header": ({"/token": token("x\r\nhost: y")}, "a token with characters that no header"),
    "a compressed answer": ({"/token": raw("", content_encoding="gzip")}, "compressed data that was not asked for"),
    "an end beyond all numbers": (
        {"/token": raw('{"access_token": "x", "token_type": "Bearer", "expires_in": 1' + "0" * 400 + "}")},
        "too large",
    ),
    "a token endpoint that hangs": (
        {"/token": lambda evil: StreamingResponse(_never())},
        "{0.origin} did not answer within 0.5 s",
    ),
    "an error that quotes the code": (
        {"/token": raw(json.dumps({"error": f"{SECRET}-code", "error_description": f"{SECRET}-code"}), 400)},
        "{0.origin} answered HTTP 400",
    ),
    "an answer that is no token": ({"/token": raw(f'{{"access_token": ["{SECRET}"]}}')}, "Invalid token response"),
    "an endless refusal": (
        {"/mcp": lambda evil: StreamingResponse(_for_ever(), 401)},
        "it does not accept the sign-in that it has just given (HTTP 401)",
    ),
    "a link that looks like another server's": (
        {
            "/.well-known/oauth-authorization-server": lambda evil: metadata(
                authorization_endpoint=f"http://accounts.example@{evil.origin[7:]}/authorize"
            )(evil)
        },
        "its link to the sign-in at {0.origin} has a user's name or is too long",
    ),
    "a link without an end": (
        {
            "/.well-known/oauth-authorization-server": lambda evil: metadata(
                authorization_endpoint=f"{evil.origin}/{'a' * 60_000}"
            )(evil)
        },
        "has a user's name or is too long",
    ),
    "a refusal that is nested": ({"/token": raw("[" * 100_000, 400)}, "{0.origin} answered HTTP 400"),
    "escapes for the terminal": ({"/register": raw("\x1b[2J", 403)}, "{0.origin} answered HTTP 403"),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_login(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "ANSWER_S", 0.5 if "hangs" in what else 30.0)
    answers, sentence = HOSTILE[what]
    async with evil(answers) as (server, seen):
        definition = ServerDefinition("evil", Remote(server.url))
        with pytest.raises(SignInFailed) as failed:
            async with asyncio.timeout(50):
                await sign_in(definition, Somebody())
        assert sentence.format(server) in str(failed.value)
        assert SECRET not in str(failed.value)
        assert str(failed.value).isprintable()
        assert not [one for one in seen if SECRET in one]


async def test_an_honest_one_with_a_client_of_its_own() -> None:
    async with evil({"/register": raw("", 500)}) as (server, _):
        client = OAuthClient("mine", f"{SECRET}-client", 0)
        with pytest.raises(SignInFailed, match="has just given"):
            await sign_in(ServerDefinition("evil", Remote(server.url, oauth=client)), Somebody())
        assert server.tokens == 1


async def test_an_honest_one_whose_sign_in_is_elsewhere() -> None:
    async with evil({}) as (issuer, _):
        answers = {"/.well-known/oauth-protected-resource/mcp": resource(servers=issuer.origin)}
        async with evil(answers) as (server, _):
            with pytest.raises(SignInFailed, match="has just given"):
                await sign_in(ServerDefinition("evil", Remote(server.url)), Somebody())
            assert (issuer.tokens, server.tokens) == (1, 0)


# ---- in use


async def used(server: Evil, tmp_path: Path, requests: int, **more: Any) -> tuple[ServerSignIn, list[int]]:
    """So many requests with a stored sign-in. The statuses."""
    file = open_sign_in(tmp_path, "file", server.url)
    tokens = {"access_token": f"{SECRET}-0", "refresh_token": f"{SECRET}-r", "token_type": "Bearer"}
    client = {"client_id": "c", "redirect_uris": ["http://127.0.0.1:1/callback"]}
    told = {
        "issuer": server.origin,
        "authorization_endpoint": f"{server.origin}/authorize",
        "token_endpoint": f"{server.origin}/token",
    }
    async with file.locked():
        await file.write(McpSignIn(url=server.url, tokens=tokens, client=client, metadata=told, **more))
    auth = ServerSignIn(ServerDefinition("evil", Remote(server.url)), file)
    async with httpx2.AsyncClient(auth=auth, trust_env=False) as http:
        statuses = [(await http.get(server.url)).status_code for _ in range(requests)]
    return auth, statuses


async def test_endless_renewal(tmp_path: Path) -> None:
    """It refuses every token, and always has a new one."""
    number = iter(range(10**6))
    async with evil({"/token": lambda evil: token(f"{SECRET}-{next(number) + 1}")(evil)}) as (server, _):
        auth, statuses = await used(server, tmp_path, 2 * MAX_RENEWALS)
        assert set(statuses) == {401}
        assert server.tokens == MAX_RENEWALS
        problem = auth.problem()
        assert problem is not None
        assert "it was renewed 10 times within 60 s, and ends at once each time: run `caretway mcp login evil`" in str(
            problem
        )


async def test_a_renewal_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request goes out as it is, and the sign-in is kept: the server may be well again later."""
    monkeypatch.setattr(oauth, "ANSWER_S", 0.3)
    async with evil({"/token": lambda evil: StreamingResponse(_never())}) as (server, _):
        auth, statuses = await used(server, tmp_path, 1, ends_at=1.0)
        assert statuses == [401]
        assert auth.state == "expired"
        assert f"its sign-in was not renewed: {server.origin} did not answer within 0.3 s" in str(auth.problem())
        kept = await open_sign_in(tmp_path, "file", server.url).read()
        assert kept is not None
        assert kept.refused == ""


async def again(auth: ServerSignIn, url: str) -> int:
    async with httpx2.AsyncClient(auth=auth, trust_env=False) as http:
        return (await http.get(url)).status_code


async def test_a_renewal_that_fails_is_tried_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if nothing but a refusal shows that a token has ended."""
    answers = {"/token": raw("", 503)}
    async with evil(answers) as (server, _):
        auth, statuses = await used(server, tmp_path, 3)
        assert (set(statuses), server.tokens) == ({401}, 1)
        assert "answered HTTP 503" in str(auth.problem())

        monkeypatch.setattr(oauth, "AGAIN_S", 0.0)
        auth, _ = await used(server, tmp_path, 2)
        assert server.tokens == 3
        answers["/token"] = token(f"{SECRET}-2")
        await again(auth, server.url)
        assert server.tokens == 4
        answers["/mcp"] = raw("")
        assert await again(auth, server.url) == 200
        assert auth.problem() is None


async def test_a_sign_in_that_cannot_be_stored_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server may take the one before no more."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    answers: dict[str, Answer] = {"/mcp": raw("")}
    async with evil(answers) as (server, _):
        auth, _ = await used(server, tmp_path, 0, ends_at=1.0)
        tokens = iter(range(1, 10))
        answers["/token"] = lambda evil: token(f"{SECRET}-{next(tokens)}", expires_in=3600)(evil)
        with monkeypatch.context() as patched:
            patched.setattr(store, "write_file", full)
            assert [await again(auth, server.url) for _ in range(3)] == [200] * 3
        assert server.tokens == 1
        assert "its sign-in as it is now is not stored: Cannot write the sign-in" in caplog.text
        assert SECRET not in caplog.text


DAMAGED: Final = {
    "nested": '{"url": "URL", "tokens": {"access_token": ' + "[" * 100_000,
    "a token that is a second header": '{"url": "URL", "client": {}, "tokens": {"access_token": "secret\\r\\nx: y"}}',
    "a token that no header holds": '{"url": "URL", "client": {}, "tokens": {"access_token": "sécret"}}',
    "a list": "[1]",
    "too large": " " * 9 * 2**20,
    "of other bytes": "\udcff",
}


def damage(place: Path, what: str, url: str) -> None:
    place.parent.mkdir(parents=True)
    if what == "a pipe":
        os.mkfifo(place)
    elif what == "a link to itself":
        place.symlink_to(place)
    else:
        place.write_bytes(DAMAGED[what].replace("URL", url).encode(errors="surrogateescape"))


@pytest.mark.parametrize("what", [*DAMAGED, "a pipe", "a link to itself"])
async def test_a_damaged_file(tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """As if there was none: the server is asked without it, and `logout` and `login` put another in its place."""
    async with evil({}) as (server, _):
        file = open_sign_in(tmp_path, "file", server.url)
        place = Path(file.place)
        damage(place, what, server.url)
        auth = ServerSignIn(ServerDefinition("evil", Remote(server.url)), file)
        assert await again(auth, server.url) == 401
        assert auth.state == "needed"
        await file.forget()
        assert place.name not in os.listdir(place.parent)
        assert "secret" not in caplog.text


async def test_a_renewal_that_is_refused_is_not_asked_for_again(tmp_path: Path) -> None:
    async with evil({"/token": raw('{"error": "invalid_grant"}', 400)}) as (server, _):
        auth, statuses = await used(server, tmp_path, 5)
        assert (set(statuses), server.tokens, auth.state) == ({401}, 1, "refused")


async def test_two_gateways_renew_one_sign_in_once(tmp_path: Path) -> None:
    """And it is kept although the request that wanted it is given up."""
    let = asyncio.Event()

    async def late() -> AsyncIterator[bytes]:
        await let.wait()
        yield json.dumps({"access_token": f"{SECRET}-new", "token_type": "Bearer", "expires_in": 3600}).encode()

    answers: dict[str, Answer] = {"/token": lambda evil: StreamingResponse(late()), "/mcp": raw("")}
    async with evil(answers) as (server, _):
        await used(server, tmp_path, 0, ends_at=1.0)
        definition = ServerDefinition("evil", Remote(server.url))
        gateways = [ServerSignIn(definition, open_sign_in(tmp_path, "file", server.url)) for _ in range(2)]

        async def ask(auth: ServerSignIn) -> int:
            async with httpx2.AsyncClient(auth=auth, trust_env=False) as http:
                return (await http.get(server.url)).status_code

        given_up, *others = [asyncio.ensure_future(ask(auth)) for auth in (gateways[0], *gateways, *gateways)]
        while server.tokens == 0:
            await asyncio.sleep(0.01)
        given_up.cancel()
        let.set()
        assert await asyncio.gather(*others) == [200] * 4
        assert server.tokens == 1
        kept = await open_sign_in(tmp_path, "file", server.url).read()
        assert kept is not None
        assert kept.access_token == f"{SECRET}-new"
        assert kept.tokens["refresh_token"] == f"{SECRET}-r", "it goes on where the server gives no other"


async def test_a_renewal_that_redirects_elsewhere(tmp_path: Path) -> None:
    async with evil({"/token": redirect("/token")}) as (server, seen):
        auth, _ = await used(server, tmp_path, 1)
        assert "which is not followed" in str(auth.problem())
        assert not [one for one in seen if SECRET in one]


async def test_a_server_that_redirects_its_calls_elsewhere(tmp_path: Path) -> None:
    async with evil({"/mcp": redirect("/mcp")}) as (server, seen):
        await used(server, tmp_path, 1)
        async with bridged({"evil": {"url": server.url}}, data_dir=tmp_path, mcp_retry_pause=60) as client:
            told = await until(client, lambda mcp: bool(mcp["problems"]) and mcp["problems"][0]["state"] == "failing")
        assert f"Redirect to {server.other}/mcp not followed" in told["problems"][0]["detail"]
        assert seen == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            lambda evil: StreamingResponse(_for_ever(), media_type="application/json"),
            "it sends more than 16777216 bytes",
        ),
        (raw("x", content_type="application/json", content_encoding="gzip"), "compressed data that was not asked for"),
    ],
)
async def test_an_answer_without_an_end(tmp_path: Path, answer: Answer, why: str) -> None:
    async with evil({"/mcp": answer}) as (server, _):
        servers = {"evil": {"url": server.url, "transport": "http"}}
        async with bridged(servers, data_dir=tmp_path, mcp_retry_pause=60) as client:
            told = await until(client, lambda mcp: bool(mcp["problems"]) and mcp["problems"][0]["state"] == "failing")
        assert why in told["problems"][0]["detail"]


@pytest.mark.parametrize(
    ("url", "server", "at", "of_server", "allowed"),
    [
        ("https://auth.example/token", "https://mcp.example/mcp", "8.8.8.8", "9.9.9.9", True),
        ("https://mcp.example/token", "https://mcp.example/mcp", "10.0.0.1", "10.0.0.1", True),
        ("https://auth.example/token", "https://mcp.example/mcp", "169.254.169.254", "9.9.9.9", False),
        ("https://auth.example/token", "https://mcp.example/mcp", "127.0.0.1", "9.9.9.9", False),
        ("https://auth.inside/token", "https://mcp.inside/mcp", "10.0.0.1", "10.0.0.2", True),
        ("http://auth.example/token", "https://mcp.example/mcp", "8.8.8.8", "9.9.9.9", False),
        ("http://mcp.example/token", "http://mcp.example/mcp", "9.9.9.9", "9.9.9.9", False),
        ("http://127.0.0.1:9/token", "https://mcp.example/mcp", "127.0.0.1", "9.9.9.9", False),
        ("http://127.0.0.1:9/token", "http://127.0.0.1:8/mcp", "127.0.0.1", "127.0.0.1", True),
        ("https://auth.example/token", "http://localhost:8/mcp", "8.8.8.8", "127.0.0.1", True),
        ("http://auth.example/token", "http://localhost:8/mcp", "8.8.8.8", "127.0.0.1", False),
    ],
)
def test_where_a_server_may_send_us(url: str, server: str, at: str, of_server: str, allowed: bool) -> None:
    assert (misplaced(httpx2.URL(url), httpx2.URL(server), [at], [of_server]) == "") is allowed
