"""Cases tried on a played backend: what is right, refused, skipped, late or broken; and calls without parking."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from caretway.accounts.catalogue import ModelCatalogue
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.events import Event, TextDelta, TurnEnded, TurnFailed, TurnPaused, TurnStarted
from caretway.core.request import Role, TurnRequest
from caretway.core.turn import Abilities, ModelInfo
from caretway.prove import conversing
from caretway.prove.cases import BY_NAME, NEEDS_TEXT, PRIVATE
from caretway.prove.context import Bench, Changes, ProveContext, Roles
from caretway.prove.conversing import converse
from caretway.prove.questions import Prover
from turns import PlayedBackend, PlayedTurn, called

TEXT_ONLY = Abilities(client_tools="text")


class Speaker(PlayedTurn):
    """Says the marker that it was asked for."""

    def answer(self, request: TurnRequest) -> None:
        self.say(TurnStarted(), TextDelta(request.messages[-1].text.rpartition(" ")[2]), TurnEnded())


class Obedient(PlayedBackend[PlayedTurn]):
    async def start(self, request: TurnRequest, snapshot: object = None) -> PlayedTurn:
        turn = await super().start(request)
        if isinstance(turn, Speaker):
            turn.answer(request)
        return turn


def prover(*turns: PlayedTurn, patience_s: float = 5.0) -> tuple[Prover, ProveContext]:
    backend = Obedient(list(turns), name="cli", listed=(ModelInfo("auto"),), abilities=TEXT_ONLY)
    models = ModelCatalogue(backend, extra=(), aliases={}, strict=False, clock=lambda: 0.0)
    bench = Bench(backend, models)

    @asynccontextmanager
    async def open_bench(changes: Changes) -> AsyncIterator[Bench]:
        yield bench

    context = ProveContext(open_bench, bench, Roles("auto"))
    return Prover(context, patience_s), context


def failing(kind: ErrorKind, code: str | None = None) -> PlayedTurn:
    return PlayedTurn(TurnFailed(GatewayError(kind, "words of Cursor's, with user@example.org in them", code=code)))


async def test_a_marker_comes_back() -> None:
    tried, context = prover(Speaker())
    assert (await tried.try_case(BY_NAME["text"])).state == "holds"
    assert context.facts == {"text": "right"}


@pytest.mark.parametrize(
    ("turn", "state", "facts"),
    [
        (PlayedTurn(TextDelta("Sure! Here you are."), TurnEnded()), "not tried", {"text": "other"}),
        (PlayedTurn(TurnEnded()), "differs", {"text": "empty"}),
        (failing(ErrorKind.FORBIDDEN), "differs", {"text": "refused", "text_code": "forbidden"}),
        (failing(ErrorKind.REFUSED, "why <b>"), "differs", {"text": "refused", "text_code": ""}),
        (failing(ErrorKind.UPSTREAM_DOWN), "not tried", {"text": "failed", "text_code": "upstream_down"}),
    ],
)
async def test_other_answers(turn: PlayedTurn, state: str, facts: dict[str, object]) -> None:
    tried, context = prover(turn)
    assert (await tried.try_case(BY_NAME["text"])).state == state
    assert context.facts == facts


async def test_nothing_more_is_asked_when_not_even_text_is_answered() -> None:
    tried, _ = prover(failing(ErrorKind.SIGNED_OUT))
    await tried.try_case(BY_NAME["text"])
    for name in ("call", "ten steps", "continuation"):
        assert (await tried.try_case(BY_NAME[name])).says == NEEDS_TEXT


async def test_what_cannot_be_asked_is_told() -> None:
    tried, context = prover(Speaker())
    assert (await tried.try_case(BY_NAME["gaps"])).says == PRIVATE
    assert (await tried.try_case(BY_NAME["picture"])).says == "this backend takes no images"
    assert "--second-model" in (await tried.try_case(BY_NAME["thinking"])).says
    assert (await tried.try_case(BY_NAME["kill -9"])).says == "no second gateway can be started here"
    assert (await tried.try_case(BY_NAME["continuation"])).says == "the first turn left nothing to continue"
    assert context.facts == {}


async def test_a_question_that_is_never_answered_ends() -> None:
    tried, _ = prover(PlayedTurn(), patience_s=0.01)
    assert (await tried.try_case(BY_NAME["text"])).says == "no answer within 0 s"


async def test_a_backend_that_fails_outright() -> None:
    tried, context = prover()
    context.main.backend.start = lambda *_: (_ for _ in ()).throw(GatewayError(ErrorKind.RATE_LIMITED, "x"))  # type: ignore[method-assign]  # a backend that cannot even start
    assert (await tried.try_case(BY_NAME["text"])).state == "differs"
    assert context.facts["text_code"] == "rate_limited"


async def test_calls_are_answered_by_a_new_turn_where_none_is_parked() -> None:
    first = PlayedTurn(*called("c1", "lookup", '{"key": "a"}'), TurnPaused())
    first.lost = True
    second = PlayedTurn(TextDelta("value"), TurnEnded())
    backend = PlayedBackend([first, second])
    talk = await converse(backend, TurnRequest("auto", (conversing.user("go"),)), lambda call: f"value of {call.name}")
    assert (talk.text, talk.calls_per_step) == ("value", (1,))
    assert [message.role for message in backend.requests[1].messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert first.closed
    assert second.closed


async def test_a_model_that_calls_for_ever_is_left() -> None:
    def again() -> list[Event]:
        return [*called("c1", "step", "{}"), TurnPaused()]

    class Looping(PlayedTurn):
        def go_on(self) -> None:
            self.say(TurnStarted(), *again())

    turn = Looping(*again())
    async with asyncio.timeout(60):
        talk = await converse(PlayedBackend([turn]), TurnRequest("auto", (conversing.user("go"),)), lambda call: "")
    assert len(talk.replies) == 24
    assert turn.closed
