r"""The simulated model over text only (legacy chat, cursor-agent): finds tools, trigger, calls and results in the
prompt, unescapes quoted words, and writes its calls as text. Pure.

In: one prompt text, or the (role, text) pairs of a conversation. Out: steps, all decided in advance. One prompt text
holds blocks that begin with `System: `, `User: ` or `Assistant: ` at the start of a line; a text without such a head is
one user message. In what others wrote a backslash stands before words that would otherwise be the protocol's own
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
    """What the model made of its prompt."""

    history: tuple[InputMessage, ...]
    tools: tuple[Tool, ...]
    trigger: str
    """Empty: no way to call a tool was explained."""
    asked_to_think: bool
    """The instructions want thinking in <thinking> tags."""


def answer(prompt: str | Sequence[tuple[Role, str]], *, thinks: bool = False) -> tuple[Step, ...]:
    """`thinks`: the model that was asked for is one that thinks by itself.

    A `Say` is written out exactly as it is, line breaks included: joining the texts of all `Say` steps gives the
    answer. A `Think` is for a wire that has a place for thinking; where the instructions ask for <thinking> tags these
    are part of the text. `Exec` and `Query` are left to a wire that has built-in tools, and a `Result` comes only after
    one of them, because only then its text is not known in advance. An answer that calls tools ends with the calls.
    """
    if not isinstance(prompt, str) and len(prompt) == 1 and prompt[0][0] == "user":
        prompt = prompt[0][1]  # a whole transcript in one message
    reading = read(split(prompt) if isinstance(prompt, str) else prompt)
    plan = brain.plan(reading.history, reading.tools, thinks=thinks or reading.asked_to_think)
    early = next((step for step in plan.steps if isinstance(step, Fail) and step.when == "before"), None)
    return (early,) if early is not None else tuple(_Writer(reading, plan).steps())


def native_steps(history: Sequence[InputMessage], tools: Sequence[Tool], *, thinks: bool = False) -> tuple[Step, ...]:
    """The same for a wire that has tools of its own: calls are a `ScriptCall`, the last step of the answer."""
    plan = brain.plan(history, tools, thinks=thinks)
    early = next((step for step in plan.steps if isinstance(step, Fail) and step.when == "before"), None)
    reading = Reading(tuple(history), tuple(tools), "", False)
    return (early,) if early is not None else tuple(_NativeWriter(reading, plan).steps())


# ---------------------------------------------------------------------------------------------- reading


def split(prompt: str) -> list[tuple[Role, str]]:
    """One text -> its blocks. A tool result in a line of its own belongs to the user's side."""
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
    waiting: list[tuple[str, str]] = []  # calls without a result: in this protocol results come in the calls' order
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
    """One JSON object in each line of the list."""
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
    """The results in a user's text, and what else it says."""
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
        """None: a built-in tool ran in between, and only the wire knows what it gave."""

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
                    for name in missing:  # all or none: half of a step could not be told from the whole afterwards
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
    """A tag inside the arguments is spelled so that no reader can take it for the end of the call."""
    return json.dumps(args, ensure_ascii=False, separators=(",", ":")).replace("</", "\\u003c/")
