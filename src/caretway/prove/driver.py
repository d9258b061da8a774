"""Tries one case after the other: asks its question unless that was asked already, and judges the facts.

Each question has a time limit. Whatever goes wrong in one is told in its cases, and the others are asked all the same.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ..core.errors import GatewayError
from . import probes, questions
from .cases import NEEDS_TEXT, PRIVATE, Case, judged
from .desk import Desk, Skipped
from .facts import CaseVerdict, code_of

PATIENCE_S: Final = 180.0
"""For one question; ten steps of a real model take a minute."""

EVEN_SO: Final = ("shapes",)
"""Asked although not even text is answered: this may be why."""

QUESTIONS: Final[dict[str, Callable[[Desk], Awaitable[None]]]] = {
    question.__name__: question
    for question in (
        probes.lists,
        probes.list_type,
        probes.http1_run,
        probes.quota,
        probes.proxy,
        questions.text,
        questions.call,
        questions.parallel,
        questions.loop,
        questions.system,
        questions.continuation,
        questions.replay,
        questions.resume,
        questions.kill,
        questions.shapes,
        questions.schema,
        questions.unknown_model,
        questions.bare_id,
        questions.thinking,
        questions.picture,
    )
}


class Prover:
    def __init__(self, desk: Desk, patience_s: float = PATIENCE_S) -> None:
        self._desk = desk
        self._patience = patience_s
        self._asked: dict[str, str] = {}
        """Question -> why it found nothing out; empty when it did."""

    async def try_case(self, case: Case) -> CaseVerdict:
        if self._desk.main.backend.name not in case.backends:
            return judged(case, {}, PRIVATE)
        if case.question not in self._asked:
            self._asked[case.question] = await self._ask(case)
        return judged(case, self._desk.facts, self._asked[case.question])

    async def _ask(self, case: Case) -> str:
        if self._desk.dead and case.runs and case.question not in EVEN_SO:
            return NEEDS_TEXT
        try:
            async with asyncio.timeout(self._patience):
                await QUESTIONS[case.question](self._desk)
        except Skipped as why:
            return str(why)
        except TimeoutError:
            return f"no answer within {self._patience:.0f} s"
        except GatewayError as error:
            return f"the question failed: {code_of(error.code or error.kind.value)}"
        return ""
