"""Wraps a text-only backend: chooses a random trigger that the request does not contain, adds derived `-thinking`
models, corrects wrong calls, and limits a response to one call if calls are not parallel.

`turn.py` turns the answer into events. Results of calls come back as a replay of the history. The wrapper uses only the
inner backend's abilities.
"""

import secrets
from collections.abc import Callable, Sequence

from msgspec import structs
from msgspec.structs import replace

from ...core.errors import GatewayError
from ...core.request import Message, Role, Text, TurnRequest
from ...core.tally import prompt_chars
from ...core.turn import Backend, BackendStatus, ModelInfo, NativeTools, Snapshot, Turn
from ...schemas.check import ArgumentCheck
from .parser import DEFAULT_TEXT_LIMITS, Parser, TextLimits
from .prompt import Manner, PromptStyle, mentions, offers_tools, prepare, tool_result, without_images, wrong_call
from .thinking import SUFFIX, base_model, with_thinking
from .turn import TextReader, TextTurn


def new_trigger() -> str:
    return f"<<CALL_{secrets.token_hex(4)}>>"


class TextToolBackend:
    def __init__(
        self,
        inner: Backend,
        *,
        native: NativeTools | None = None,
        style: PromptStyle = "tags",
        base_models: Sequence[str] = (),
        limits: TextLimits = DEFAULT_TEXT_LIMITS,
        new_trigger: Callable[[], str] = new_trigger,
    ) -> None:
        """`base_models`: models to offer in addition to the inner backend's list. `native`: the inner backend, if it
        accepts the tools of some requests natively."""
        self.name = inner.name
        self.standing = inner.standing
        self.abilities = replace(inner.abilities, client_tools="native", parks=native is not None)
        self._inner = inner
        self._takes_tools = native
        self._style: PromptStyle = style
        self._base_models = tuple(base_models)
        self._limits = limits
        self._new_trigger = new_trigger
        self._native: frozenset[str] | None = None

    async def models(self) -> Sequence[ModelInfo]:
        models = list(await self._inner.models())
        self._native = frozenset(model.id for model in models)
        models += [ModelInfo(name, name) for name in self._base_models if name not in self._native]
        return with_thinking(models)

    async def status(self) -> BackendStatus:
        return await self._inner.status()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> Turn:
        model, thinks = base_model(request.model, await self._known(request.model))
        native = self._takes_tools if offers_tools(request) and not thinks else None
        if native is not None and not await native.why_text(request, snapshot):
            return await self._inner.start(request, snapshot)
        request = structs.replace(request, model=model)
        if not self._inner.abilities.images:
            request = without_images(request)
        trigger = self._trigger(request)
        manner = Manner(trigger, self._style, thinks, continued=snapshot is not None, limits=self._limits)
        text_request = prepare(request, manner)
        offered = offers_tools(request)
        names = [tool.name for tool in request.tools] if offered else []
        only = request.tool_choice.name if request.tool_choice.mode == "named" else ""
        fits = ArgumentCheck(request.tools).problem

        def problem(name: str, arguments: str) -> str:
            if only not in ("", name):
                return f"the request demands a call of `{only}`"
            misfit = fits(name, arguments)
            return misfit and f"the arguments do not fit ({misfit})"

        corrects = offered and self._inner.abilities.continues
        parser = Parser(
            trigger if offered else "",
            frozenset(names),
            thinking=thinks,
            keep_bad_calls=corrects,
            max_call_chars=self._limits.max_call_chars,
            problem=problem,
        )

        async def correct(kept: Snapshot, reader: TextReader) -> Turn:
            answers = [
                tool_result(f"wrong_{i}", bad.name, wrong_call(bad.problem, names), is_error=True)
                for i, bad in enumerate(reader.wrong, 1)
            ]
            more = (Message(Role.ASSISTANT, (Text(reader.said),)), Message(Role.USER, (Text("\n\n".join(answers)),)))
            messages = (*text_request.messages, *more)
            asked = structs.replace(text_request, messages=messages, reopened=reader.runs.opened)
            return await self._inner.start(asked, kept)

        limits = self._limits
        if not request.tool_choice.parallel:
            limits = replace(limits, max_calls=1)
        inner = await self._inner.start(text_request, snapshot)
        chars, opened = prompt_chars(text_request), request.reopened
        reader = TextReader(parser, limits, prompt_chars=chars, only=only, corrects=corrects, opened=opened)
        return TextTurn(inner, reader, correct)

    async def _known(self, model: str) -> frozenset[str]:
        """Upstream's own model ids, because a model with the name of a derived model may exist upstream."""
        if self._native is None and model.endswith(SUFFIX):
            try:
                await self.models()
            except GatewayError:
                return frozenset()  # the turn reports the error, or works
        return self._native or frozenset()

    def _trigger(self, request: TurnRequest) -> str:
        while mentions(request, trigger := self._new_trigger()):
            pass
        return trigger
