"""The cursor-agent stand-in's print mode: `stream-json` lines with the real program's repetitions, usage, and faults
(cut or long lines, no result, no exit, a grandchild).

Written from descriptions of the real program alone; it shares no code with the reader of these lines.
"""

import itertools
import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .. import text_model
from ..model_input import PREAMBLE_TOKENS, Role
from ..script import Drop, Exec, Fail, Hang, Mute, Query, Result, Say, ScriptStream, Step, Think, Wait, has_script
from .words import (
    FAILURES,
    NO_MODEL,
    QUERIES,
    SIGNED_OUT,
    UNTRUSTED,
    Chats,
    Faults,
    StoredChat,
    bad_model,
    outcome,
    read_faults,
    tool,
)

WORDS: Final = re.compile(r"\S+\s*|\s+")
FOREVER_S: Final = 3600.0
HEARTBEAT_S: Final = 1.0
_CHARS_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class Options:
    format: str = "text"
    partial: bool = False
    model: str = "auto"
    mode: str = "agent"
    force: bool = False
    trust: bool = False
    workspace: str = "."
    resume: str | None = None


class Failed(Exception):
    """The program ends with this message on stderr and exit code 1."""


@dataclass(slots=True)
class _Pipe:
    """Standard output, with byte-level faults."""

    faults: Faults

    def line(self, record: dict[str, Any]) -> None:
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        self.raw(text.encode() + (b"\r\n" if self.faults.has("crlf") else b"\n"))

    def raw(self, data: bytes) -> None:
        step = 1 if self.faults.has("split-utf8") and not data.isascii() else len(data)
        for start in range(0, len(data), step):
            piece = data[start : start + step]
            while piece:
                piece = piece[os.write(1, piece) :]


@dataclass(slots=True)
class PrintRun:
    options: Options
    chat: StoredChat
    faults: Faults
    prompt: str
    pipe: _Pipe
    chats: Chats
    said: list[str] = field(default_factory=list)
    last_segment: str = ""
    segment: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    own_calls: int = 0
    """How often the program called its own tools: after each call the model reads the whole context again."""
    calls: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    # ---- records

    def record(self, kind: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, **more, "session_id": self.chat.id}

    def _stamp(self) -> dict[str, Any]:
        return {"timestamp_ms": int(time.time() * 1000)}

    def _assistant(self, text: str, *, stamped: bool, call: str | None = None) -> None:
        message: dict[str, Any] = {"message": {"role": "assistant", "content": [{"type": "text", "text": text}]}}
        if self.form == "flat":
            message = {"text": text}
        record = self.record("assistant", **message)
        if call is not None:
            record["model_call_id"] = call
        if stamped:
            record |= self._stamp()
        self.pipe.line(record)

    @property
    def form(self) -> str:
        return self.faults.text("form") or "standard"

    # ---- the run

    def begin(self) -> None:
        for notice in filter(None, [self.faults.text("notice")]):
            self.pipe.raw(notice.encode() + b"\n")
        self.pipe.line(
            {
                "type": "system",
                "subtype": "init",
                "apiKeySource": "login",
                "cwd": self.options.workspace,
                "session_id": self.chat.id,
                "model": "Simulated",
                "permissionMode": "default",
            }
        )
        content = [{"type": "text", "text": self.prompt}]
        self.pipe.line(self.record("user", message={"role": "user", "content": content}))

    def perform(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Say(text):
                    for word in WORDS.findall(text):
                        self._say(word)
                case ScriptStream():
                    for index in range(step.count):
                        self._say(step.delta(index))
                        time.sleep(step.delay_ms / 1000)
                case Think(text):
                    self._think(text)
                case Wait(delay_ms):
                    time.sleep(delay_ms / 1000)
                case Exec(kind, args):
                    self._exec(kind, args)
                case Query(kind, args):
                    self._query(QUERIES.get(kind, "askQuestionInteractionQuery"), args)
                case Result():
                    self._say("\n".join(self.results))
                case Fail(code):
                    raise Failed(FAILURES[code])
                case Drop(times):
                    if self.chats.attempts(self.prompt) <= times:
                        os.kill(os.getpid(), signal.SIGKILL)
                case Hang():
                    while True:
                        self.pipe.line(self.record("connection", subtype="reconnecting"))
                        time.sleep(HEARTBEAT_S)
                case Mute():
                    time.sleep(FOREVER_S)
                case _:
                    pass  # client tools are text here: the model writes them out

    def _say(self, text: str) -> None:
        if self.said and self.faults.has("die-mid-line"):
            self.pipe.raw(b'{"type":"assistant","message":{"role":"assist')
            os.kill(os.getpid(), signal.SIGKILL)
        self.said.append(text)
        self.segment.append(text)
        time.sleep(self.faults.number("slow", 0.0) / 1000)
        if self.options.partial and self.form != "flush-only":
            self._assistant(text, stamped=self.form != "no-timestamps")

    def _think(self, text: str) -> None:
        if self.options.partial:
            for word in WORDS.findall(text):
                self.pipe.line(self.record("thinking", subtype="delta", text=word, **self._stamp()))
            self.pipe.line(self.record("thinking", subtype="completed", **self._stamp()))

    def flush(self, *, last: bool) -> None:
        """Print the segment once more, as the program does before a tool call and at the end."""
        text = "".join(self.segment)
        if last and self.form == "whole-at-end":
            text = "".join(self.said)
        elif last and self.form == "repeated-at-end" and not text:
            text = self.last_segment
        self.last_segment = "".join(self.segment) or self.last_segment
        self.segment.clear()
        if not text or (last and self.form == "no-end"):
            return
        if last:
            self._assistant(text, stamped=False, call="mc-end" if self.form == "call-id-at-end" else None)
        else:
            self._assistant(text, stamped=self.form != "no-timestamps", call=f"mc-{len(self.said)}")

    def _exec(self, kind: str, args: dict[str, Any]) -> None:
        self.flush(last=False)
        self.own_calls += 1
        own, call = tool(kind), f"tool_{next(self.calls)}"
        model_call = f"mc-{call}"
        body: dict[str, Any] = {"args": {**args, "toolCallId": call}}
        payload = {"description": f"simulated {kind}", own.key: body}

        def report(subtype: str) -> None:
            record = self.record("tool_call", subtype=subtype, call_id=call, tool_call=payload)
            self.pipe.line(record | {"model_call_id": model_call} | self._stamp())

        report("started")
        time.sleep(self.faults.number("slow-tool", 0.0) / 1000)
        reason = ""
        if own.gated and self.options.mode != "agent":
            reason = f"not allowed in {self.options.mode} mode"
        elif own.gated and not self.options.force:
            self._query("shellRequestQuery", args)
            reason = "rejected by the user"
        if reason:
            body["result"] = {"rejected": {"reason": reason}}
            self.results = [f"rejected: {reason}"]
        else:
            success, text = outcome(kind, args)
            if self.faults.has("long-line"):
                success["content"] = "x" * int(self.faults.number("long-line", 300_000))
            body["result"] = {"success": success}
            self.results = [text]
        report("completed")

    def _query(self, query_type: str, args: dict[str, Any]) -> None:
        """Ask for permission. Stdin is closed, so there is no reply, and the call is rejected."""
        number = next(self.calls)
        query = {"id": number, query_type: {"args": args, "skipApproval": False}}
        self.pipe.line({"type": "interaction_query", "subtype": "request", "query_type": query_type, "query": query})
        answer = {"id": number, query_type.replace("Query", "Response"): {"rejected": {"reason": "no answer"}}}
        self.pipe.line(
            {"type": "interaction_query", "subtype": "response", "query_type": query_type, "response": answer}
        )
        self.results = ["rejected: no answer"]

    def result(self) -> dict[str, Any]:
        text = "".join(self.said)
        before = sum(len(said) for _, said in self.chat.blocks)
        new, known = -(-len(self.prompt) // _CHARS_PER_TOKEN), -(-before // _CHARS_PER_TOKEN)
        if before:
            known += PREAMBLE_TOKENS
        else:
            new += PREAMBLE_TOKENS
        usage = {
            "inputTokens": new,
            "outputTokens": -(-len(text) // _CHARS_PER_TOKEN),
            "cacheReadTokens": known + self.own_calls * (new + known),
            "cacheWriteTokens": 0,
        }
        record = {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "duration_ms": 1,
            "duration_api_ms": 1,
            "result": text,
            "session_id": self.chat.id,
            "request_id": f"req-{self.chat.id}",
        }
        return record if self.faults.has("no-usage") else record | {"usage": usage}


def run(options: Options, prompt: str, chats: Chats, *, signed_in: bool) -> int:
    if not (options.trust or options.force):
        sys.stdout.write(UNTRUSTED + "\n")
        return 0
    chat = _chat(options, chats)
    new = text_model.split(prompt)
    faults = read_faults(new)
    if chat is None:
        chat = StoredChat(options.resume, []) if faults.has("keep-unknown-id") and options.resume else chats.new()
    doing = PrintRun(options, chat, faults, prompt, _Pipe(faults), chats)
    streaming = options.format == "stream-json"
    try:
        if not signed_in:
            raise Failed(SIGNED_OUT)
        if options.model == NO_MODEL:
            raise Failed(bad_model(options.model))
        if faults.has("error"):
            raise Failed(FAILURES.get(faults.text("error"), faults.text("error")))
        if faults.has("leave"):
            return 0
        if not streaming:
            doing.pipe = _Silent(faults)
        doing.begin()
        if faults.has("grandchild"):
            import subprocess

            subprocess.Popen(["sleep", str(FOREVER_S)])  # noqa: S603, S607 - it only waits, to be cleaned up
        while faults.has("flood"):
            doing.pipe.raw(f"{faults.text('flood')}\n".encode() * 100)
        if seen := looked_at(prompt):
            doing.perform([Say(seen)])
        doing.perform(text_model.answer([*typed(chat.blocks), *new], thinks=options.model == "sim-think"))
        if faults.has("stderr"):
            raise Failed(faults.text("stderr"))
    except Failed as failed:
        sys.stderr.write(str(failed) + "\n")
        return 1
    return _end(doing, chats, [*chat.blocks, *new])


def looked_at(prompt: str) -> str:
    """The image count that a model would mention; empty if a script gives the reply."""
    if has_script(prompt):
        return ""
    count = sum(
        line.endswith((".png", ".jpeg", ".gif", ".webp")) and os.path.isfile(line) for line in prompt.splitlines()
    )
    return pictures_seen(count)


def pictures_seen(count: int) -> str:
    return f"[{count} image{'s' * (count != 1)}] " if count else ""


def _end(doing: PrintRun, chats: Chats, blocks: Sequence[tuple[str, str]]) -> int:
    options, faults, chat = doing.options, doing.faults, doing.chat
    record = doing.result()
    doing.flush(last=True)
    chat.blocks = [*blocks, ("assistant", "".join(doing.said))]
    chats.save(chat)
    if options.format == "text":
        sys.stdout.write("".join(doing.said) + "\n")
    elif faults.has("error-result"):
        error = {"message": faults.text("error-result"), "code": "simulated"}
        _Pipe(faults).line(doing.record("result", subtype="error", is_error=True, error=error))
    elif not faults.has("no-result"):
        _Pipe(faults).line(record)
    if faults.has("ignore-term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if faults.has("never-exit") or faults.has("ignore-term"):
        time.sleep(FOREVER_S)
    return int(faults.number("exit", 0))


class _Silent(_Pipe):
    """The output of formats that print everything at the end."""

    def raw(self, data: bytes) -> None:
        pass


def _chat(options: Options, chats: Chats) -> StoredChat | None:
    """The chat to resume; None for an unknown id, which silently starts a new chat."""
    return chats.find(options.resume) if options.resume else None


def typed(blocks: Sequence[tuple[str, str]]) -> list[tuple[Role, str]]:
    roles: dict[str, Role] = {"system": "system", "assistant": "assistant"}
    return [(roles.get(role, "user"), text) for role, text in blocks]
