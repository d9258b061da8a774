r"""The simulated model for text-only wires (legacy chat, cursor-agent): reads tools, trigger, calls and results from
the prompt and writes its calls as text. Pure.

Input: one prompt text, or the (role, text) pairs of a conversation. Output: the steps, all decided in advance. A prompt
text consists of blocks that begin with `System: `, `User: ` or `Assistant: ` at the start of a line; a text without
such a head is one user message. In quoted text a backslash precedes words that would otherwise belong to the protocol
(`<\invoke`, `\User: `).
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from . import brain
from .model_input import InputCall, InputMessage, InputResult, InputText, Part, Role, Tool, find
from .script import (
    Exec,
    Fail,
    Instructions,
    Loop,
    Query,
    Recall,
    Result,
    Say,
    ScriptCall,
    ScriptStream,
    Step,
    Think,
    ToolUse,
)

_HEAD: Final = re.compile(r"^(?:(System|User|Assistant): ?|(?=\[Tool result for [^\]\n]*\]: ))", re.MULTILINE)
_ROLES: Final[dict[str, Role]] = {"System": "system", "User": "user", "Assistant": "assistant"}
_TRIGGER: Final = re.compile(r"<<CALL_\w+>>")
_BRIDGE: Final = re.compile(r"<tool_bridge>.*?</tool_bridge>\s*", re.DOTALL)
_FUNCTIONS: Final = re.compile(r"<function_list>(.*?)</function_list>", re.DOTALL)
_THINK_HINT: Final = re.compile(r"^.*<thinking>\.\.\.</thinking>.*$", re.MULTILINE)
_INVOKE: Final = re.compile(r'<invoke name="([^"\n]*)">(.*?)</invoke>', re.DOTALL)
_CALLED: Final = re.compile(r"^\[Called tool: ([^(\n]+)\((.*)\)\]$", re.MULTILINE)
_TAGGED_RESULT: Final = re.compile(r"<tool_result\b([^>\n]*)>\n?(.*?)\n?</tool_result>", re.DOTALL)
_LINED_RESULT: Final = re.compile(r"^\[Tool result for ([^\]\n]*)\]: (.*)", re.DOTALL)
_ESCAPED_TAG: Final = re.compile(
    r"(<<?)\\(?=\\*/?(?:invoke|tool_result|tool_bridge|function_list|CALL_))", re.IGNORECASE
)
_ESCAPED_HEAD: Final = re.compile(
    r"^\\(?=\\*(?:System:|User:|Assistant:|\[Tool result for |\[Called tool: ))", re.MULTILINE | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Reading:
    """The model's reading of its prompt."""

    history: tuple[InputMessage, ...]
    tools: tuple[Tool, ...]
    trigger: str
    """Empty: the prompt explains no way to call a tool."""
    asked_to_think: bool
    """The instructions ask for thinking in <thinking> tags."""


def answer(prompt: str | Sequence[tuple[Role, str]], *, thinks: bool = False) -> tuple[Step, ...]:
    """The steps of an answer. `thinks`: the requested model thinks by itself. A `Say` is written exactly as it is: the
    texts of all `Say` steps, joined, are the answer. A `Think` is for a wire with a field for thinking; where the
    instructions ask for <thinking> tags, thinking is part of the text. `Exec` and `Query` are for a wire with built-in
    tools; a `Result` follows only one of them, because only then is its text not known in advance. An answer that calls
    tools ends with the calls."""
    if not isinstance(prompt, str) and len(prompt) == 1 and prompt[0][0] == "user":
        prompt = prompt[0][1]  # a whole transcript in one message
    reading = read(split(prompt) if isinstance(prompt, str) else prompt)
    plan = brain.plan(reading.history, reading.tools, thinks=thinks or reading.asked_to_think)
    early = next((step for step in plan.steps if isinstance(step, Fail) and step.when == "before"), None)
    return (early,) if early is not None else tuple(_Writer(reading, plan).steps())


def native_steps(history: Sequence[InputMessage], tools: Sequence[Tool], *, thinks: bool = False) -> tuple[Step, ...]:
    """Like `answer`, for a wire with tools: calls are a `ScriptCall`, the last step of the answer."""
    plan = brain.plan(history, tools, thinks=thinks)
    early = next((step for step in plan.steps if isinstance(step, Fail) and step.when == "before"), None)
    reading = Reading(tuple(history), tuple(tools), "", False)
    return (early,) if early is not None else tuple(_NativeWriter(reading, plan).steps())


# ---------------------------------------------------------------------------------------------- reading


def split(prompt: str) -> list[tuple[Role, str]]:
    """The blocks of a text. A tool result on its own line belongs to the user."""
    heads = list(_HEAD.finditer(prompt))
    if not heads:
        return [("user", prompt)]
    before = prompt[: heads[0].start()]
    blocks: list[tuple[Role, str]] = [("user", before)] if before.strip() else []
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        text = prompt[head.end() : following.start() if following else len(prompt)]
        blocks.append((_ROLES.get(head[1] or "", "user"), text.strip("\n")))
    return blocks


def read(blocks: Sequence[tuple[Role, str]]) -> Reading:
    trigger, tools, asked = "", tuple[Tool, ...](), False
    ids = count(1)
    waiting: list[tuple[str, str]] = []  # calls without a result; results come in the order of the calls
    history: list[InputMessage] = []
    for role, text in blocks:
        if role == "assistant":
            parts = tuple(_assistant_parts(text, ids))
            waiting = [(part.call_id, part.name) for part in parts if isinstance(part, InputCall)]
            history.append(InputMessage("assistant", parts))
            continue
        for bridge in _BRIDGE.findall(text):
            found = _TRIGGER.search(bridge)
            trigger = found[0] if found else trigger
            tools = _tools(bridge) or tools
        asked = asked or (_THINK_HINT.search(text) is not None)
        text = _THINK_HINT.sub("", _BRIDGE.sub("", text))
        results, text = _results(text, waiting) if role == "user" else ([], text)
        if results:
            history.append(InputMessage("tool", tuple(results)))
        if text.strip():
            history.append(InputMessage(role, (InputText(_unescape(text).strip("\n")),)))
    return Reading(tuple(history), tools if trigger else (), trigger, asked)


def _tools(bridge: str) -> tuple[Tool, ...]:
    """Tools from a list with one JSON object per line."""
    return tuple(
        Tool(tool["name"], tool["name"], description=tool.get("description", ""), schema=tool.get("parameters", {}))
        for listed in _FUNCTIONS.findall(bridge)
        for line in listed.splitlines()
        if isinstance(tool := _json(line), dict) and "name" in tool
    )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _assistant_parts(text: str, ids: Iterator[int]) -> Iterator[Part]:
    trigger = _TRIGGER.search(text)
    pattern = _INVOKE if trigger else _CALLED
    said = text[: trigger.start()] if trigger else _CALLED.sub("", text)
    if said.strip():
        yield InputText(_unescape(said).strip("\n"))
    for name, args in pattern.findall(text, trigger.end() if trigger else 0):
        yield InputCall(f"call_{next(ids)}", name, args)


def _results(text: str, waiting: list[tuple[str, str]]) -> tuple[list[InputResult], str]:
    """The results in a user's text, and the rest of the text."""
    found = [(attributes, inside) for attributes, inside in _TAGGED_RESULT.findall(text)]
    rest = _TAGGED_RESULT.sub("", text)
    if not found and (lined := _LINED_RESULT.match(text)):
        found, rest = [("", lined[2])], ""
    results = []
    for attributes, inside in found:
        call_id, name = waiting.pop(0) if waiting else ("", "")
        results.append(InputResult(call_id, name, _unescape(inside), 'error="true"' in attributes))
    return results, rest


def _unescape(text: str) -> str:
    return _ESCAPED_HEAD.sub("", _ESCAPED_TAG.sub(r"\1", text))


# ---------------------------------------------------------------------------------------------- writing


class _Writer:
    def __init__(self, reading: Reading, plan: brain.Plan) -> None:
        self._reading = reading
        self._plan = plan
        self._joins = plan.said
        self._spoke = False
        self._results: tuple[str, ...] | None = plan.results
        """None: a built-in tool ran, and only the wire knows its result."""

    def steps(self) -> Iterator[Step]:
        for step in self._plan.steps:
            match step:
                case Say(text):
                    yield from self._say(text)
                case Think(text):
                    yield from self._think(text)
                case Result() if self._results is not None:
                    yield from self._say("\n".join(self._results))
                case Recall():
                    yield from self._say(self._recall())
                case Instructions():
                    yield from self._say(self._instructions())
                case ScriptStream():
                    if self._joins:
                        yield Say("\n")
                    self._joins = self._spoke = True
                    yield step
                case ScriptCall(uses):
                    missing = [use.name for use in uses if find(self._reading.tools, use.name) is None]
                    if not missing:
                        yield self._call(uses)
                        return
                    for name in missing:  # all or none: later a half-called step could not be recognised
                        yield from self._say(brain.not_offered(name))
                case Loop(use):
                    if find(self._reading.tools, use.name) is not None:
                        yield self._call((use,))
                        return
                    yield from self._say(brain.not_offered(use.name))
                case Fail(code):
                    if step.when == "after" and not self._spoke:
                        yield from self._say(brain.PARTIAL_ANSWER)
                    yield Fail(code)
                    return
                case Exec() | Query():
                    self._results = None
                    self._joins = False
                    yield step
                case _:
                    yield step

    def _say(self, text: str) -> Iterator[Step]:
        if text:
            yield Say("\n" + text if self._joins else text)
            self._joins = self._spoke = True

    def _think(self, text: str) -> Iterator[Step]:
        if self._reading.asked_to_think:
            yield Say(f"<thinking>{text}</thinking>\n")
            self._joins = False
        else:
            yield Think(text)

    def _recall(self) -> str:
        history, at = self._reading.history, self._plan.at
        return brain.recall(history, at, brain.count_results(history[at + 1 :]))

    def _instructions(self) -> str:
        return "\n".join(message.text for message in self._reading.history if message.role == "system")

    def _call(self, uses: Sequence[ToolUse]) -> Step:
        lines = [f'<invoke name="{use.name}">{_spell(use.args)}</invoke>' for use in uses]
        text = "\n".join([self._reading.trigger, *lines])
        return Say("\n" + text if self._joins else text)


class _NativeWriter(_Writer):
    def _call(self, uses: Sequence[ToolUse]) -> Step:
        return ScriptCall(tuple(uses))


def _spell(args: dict[str, Any]) -> str:
    """JSON of the arguments with tags escaped, so that no parser takes them for the end of the call."""
    return json.dumps(args, ensure_ascii=False, separators=(",", ":")).replace("</", "\\u003c/")
