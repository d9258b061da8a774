"""The cursor-agent stand-in's tool loop over MCP: one prompt that calls tools, waits for all their results and goes on,
as often as its script says; calls that no rule allows are rejected.
"""

import json
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from .. import text_model
from ..model_input import InputCall, InputMessage, InputResult, InputText, Role
from ..script import ScriptCall, Step, ToolUse
from .mcp_client import ReachedServer, allowed, call


class Abandoned(Exception):
    """The prompt was cancelled while a tool was waited for."""


class Prompted(Protocol):
    """What the loop needs of a prompt in progress."""

    said: list[str]
    calls: int
    earlier: list[tuple[str, str]]

    @property
    def servers(self) -> Sequence[ReachedServer]: ...

    @property
    def cwd(self) -> str: ...

    @property
    def force(self) -> bool: ...

    @property
    def rejects(self) -> bool: ...

    @property
    def cancelled(self) -> bool: ...

    def step(self, step: Step) -> ToolUse | None:
        """What the model calls in place of it, if it was rejected and the model was told what to do then."""
        ...

    def tell(self, kind: str, /, **more: Any) -> None: ...


def follow(doing: Prompted, blocks: Sequence[tuple[Role, str]], *, thinks: bool) -> None:
    tools = [tool for server in doing.servers for tool in server.tools]
    history = list(text_model.read(blocks).history)
    while True:
        uses: Sequence[ToolUse] = ()
        for step in text_model.native_steps(history, tools, thinks=thinks):
            if isinstance(step, ScriptCall):
                uses = step.uses
            elif (use := doing.step(step)) is not None:
                uses = (use,)
            if uses:
                break
        if not uses:
            return
        spoken = "".join(doing.said)
        made = [InputCall(f"call_{doing.calls + n}", use.name, json.dumps(use.args)) for n, use in enumerate(uses, 1)]
        given = _call_all(doing, uses, [one.call_id for one in made])
        words = (InputText(spoken),) if spoken else ()
        history += [InputMessage("assistant", (*words, *made)), InputMessage("tool", tuple(given))]
        lines = "".join(f"\n[Called tool: {one.name}({one.args})]" for one in made)
        doing.earlier.append(("assistant", spoken + lines))
        doing.earlier += [("user", f"[Tool result for {one.call_id}]: {one.text}") for one in given]
        doing.said.clear()


def _call_all(doing: Prompted, uses: Sequence[ToolUse], ids: Sequence[str]) -> list[InputResult]:
    """All at once, as the real program does: announced and numbered in the model's order, each on a connection of its
    own, so that they arrive in any."""
    doing.calls += len(uses)
    found: dict[str, InputResult] = {}

    def one(call_id: str, use: ToolUse, server: ReachedServer, number: int) -> None:
        if not doing.rejects and (doing.force or allowed(doing.cwd, server.name, use.name)):
            text, failed = call(server, use.name, use.args, number)
        else:
            text, failed = "MCP tool call rejected: it is not in the allow list", True
        doing.tell("tool_call_update", toolCallId=_odd(call_id), status="failed" if failed else "completed")
        found[call_id] = InputResult(call_id, use.name, text, failed)

    threads = []
    for call_id, use in zip(ids, uses, strict=True):
        server = next(s for s in doing.servers if any(tool.shown == use.name for tool in s.tools))
        about = {"title": f"{server.name}-{use.name}: {use.name}", "kind": "other", "rawInput": dict(use.args)}
        doing.tell("tool_call", toolCallId=_odd(call_id), status="pending", **about)
        numbered = (call_id, use, server, next(server.numbers))
        threads.append(threading.Thread(target=one, args=numbered, daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.02)
            if doing.cancelled:
                raise Abandoned
    return [found[call_id] for call_id in ids]


def _odd(call_id: str) -> str:
    """Ids with a line break were seen."""
    return f"{call_id}\nfc_{call_id}"
