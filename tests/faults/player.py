"""A client that plays a scene: asks, runs what it is asked to run, answers, and keeps an exact account of both.

It behaves as the official SDKs do: an error status that may pass is asked again (`retries` times), and so is a request
whose connection broke where the client's own network is the bad one. It runs every call that it is given, whatever its
id: finding out that it has run it before is the gateway's business, not the client's.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from random import Random
from typing import Any, Final, NoReturn

from faults.answers import SPEAKERS, Answer, Malformed, first_request, read, with_prompt, with_results
from faults.http import Connection, Got
from faults.judge import End, Played
from faults.scenes import Scene, call_key, outcome

_HEADERS: Final = {"authorization": "Bearer any", "anthropic-version": "2023-06-01"}


@dataclass(frozen=True, slots=True)
class Manner:
    """How the client of one scene behaves."""

    dialect: str
    stream: bool
    _: KW_ONLY
    retries: int = 0
    """After an error status that may pass."""
    frail: bool = False
    """The client's own network is the bad one: what breaks there is asked again."""
    patience: float = 60.0
    """Seconds that the client waits for one answer."""
    tool_seconds: float = 0.0
    like_sdk: bool = False
    """`retries` are for whatever goes wrong, with the waits of the official SDKs."""
    stubborn: bool = False
    """The gateway may be killed: what breaks off is asked again, and one that is not there is waited for."""


FRAIL_RETRIES: Final = 12


@dataclass(slots=True)
class Lines:
    """Kept connections to one port."""

    port: int
    keep: bool = True
    idle: list[Connection] = field(default_factory=list)

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Connection]:
        while self.idle and not self.idle[-1].usable:
            self.idle.pop()
        connection = self.idle.pop() if self.idle else await Connection.open(self.port)
        try:
            yield connection
        finally:
            if connection.usable and self.keep:
                self.idle.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        for connection in self.idle:
            connection.close()
        self.idle.clear()


class _Ended(Exception):
    """The scene is over before its last answer."""


Heard = Callable[[Got, str], None]
"""Told of every answer, and why it is asked for again, if it is."""


async def play(
    scene: Scene, manner: Manner, lines: Lines, random: Random, heard: Heard = lambda _got, _why: None
) -> Played:
    played = Played()
    with suppress(_Ended):
        await _Player(scene, manner, lines, random, played, heard).play()
    return played


class _Player:
    def __init__(
        self, scene: Scene, manner: Manner, lines: Lines, random: Random, played: Played, heard: Heard
    ) -> None:
        self._heard = heard
        self._scene = scene
        self._manner = manner
        self._lines = lines
        self._random = random
        self._played = played

    async def play(self) -> None:
        dialect, body = self._manner.dialect, None
        for turn in self._scene.turns:
            told = self._played.answers[-1][-1] if self._played.answers else None
            if body is None or told is None:
                body = first_request(dialect, turn.prompt, self._manner.stream)
            else:
                body = with_prompt(dialect, body, told, turn.prompt)
            self._played.answers.append([])
            for _ in range(len(turn.calls) + 2):
                answer = await self._ask(body)
                if not answer.calls:
                    break
                body = with_results(dialect, body, answer, await self._run(answer))
            else:
                self._end(End.ENDLESS)

    async def _run(self, answer: Answer) -> dict[str, str]:
        results = {}
        for call in answer.calls:
            key = call_key(call.name, call.arguments)
            self._played.ran[key] += 1
            results[call.id] = outcome(self._scene.nonce, key, self._played.ran[key])
        if self._manner.tool_seconds:
            await asyncio.sleep(self._manner.tool_seconds)
        return results

    async def _ask(self, body: dict[str, Any]) -> Answer:
        manner, played = self._manner, self._played
        data = json.dumps(body).encode()
        retries, frail = manner.retries, FRAIL_RETRIES if manner.frail or manner.stubborn else 0
        clock = asyncio.get_running_loop().time
        until = clock() + manner.patience
        while True:
            got = await self._post(data)
            if manner.like_sdk:
                why = _wrong(got)
                self._heard(got, why if retries else "")
                if why and retries:
                    retries -= 1
                    await asyncio.sleep(0.5 * 2 ** (manner.retries - retries - 1) * self._random.uniform(0.75, 1.0))
                    continue
                played.longest_s = max(played.longest_s, got.seconds)
                return self._understood(got)
            if manner.frail and got.late:
                until = clock() + manner.patience  # its own network took the time: a killed gateway has as much again
            elif manner.stubborn and not got.status and clock() < until:
                await asyncio.sleep(self._random.uniform(0.05, 0.3))
                continue
            if not got.whole and frail:
                frail -= 1
                await asyncio.sleep(self._random.uniform(0.05, 0.3))
                continue
            if not manner.frail:  # a bad network of the client's own may take as long as it likes
                played.longest_s = max(played.longest_s, got.seconds)
            if got.status and got.status != 200 and got.whole and retries and _may_pass(got):
                retries -= 1
                await asyncio.sleep(self._random.uniform(0.1, 0.5))
                continue
            return self._understood(got)

    async def _post(self, data: bytes) -> Got:
        self._played.posts += 1
        try:
            async with self._lines.line() as line:
                return await line.post(SPEAKERS[self._manner.dialect].path, _HEADERS, data, self._manner.patience)
        except OSError as refused:
            return Got(headers={"refused": str(refused)})

    def _understood(self, got: Got) -> Answer:
        played = self._played
        played.status = got.status
        if got.late:
            self._end(End.LATE)
        if not got.whole:
            self._end(End.CUT, f"after {len(got.body)} bytes {got.headers.get('refused', '')}")
        try:
            answer = read(self._manner.dialect, got)
        except Malformed as malformed:
            self._end(End.MALFORMED, str(malformed))
        played.answers[-1].append(answer)
        if answer.error:
            played.code = answer.error
            self._end(End.ERROR)
        if not answer.complete:
            self._end(End.CUT, "the stream has no end")
        return answer

    def _end(self, end: End, detail: str = "") -> NoReturn:
        self._played.end, self._played.detail = end, detail
        raise _Ended


def _wrong(got: Got) -> str:
    """Why a client asks again."""
    if not got.status:
        return "no answer"
    if not got.whole:
        return "cut"
    return f"status {got.status}" if got.status != 200 and _may_pass(got) else ""


def _may_pass(got: Got) -> bool:
    """As the official SDKs decide it."""
    told = got.headers.get("x-should-retry")
    if told in ("true", "false"):
        return told == "true"
    return got.status in (408, 409, 429) or got.status >= 500
