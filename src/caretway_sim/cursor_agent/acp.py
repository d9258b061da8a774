"""The cursor-agent stand-in's ACP mode: JSON-RPC over stdin and stdout, with sessions, modes, prompts, permission
requests and cancels (which it can ignore).

Each prompt runs in its own thread, so that cancels and the client's responses can be read meanwhile.
"""

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .. import text_model
from ..script import (
    Drop,
    Exec,
    Fail,
    Hang,
    Mute,
    Query,
    Result,
    Say,
    ScriptStream,
    Step,
    Think,
    ToolUse,
    Wait,
    has_script,
)
from .native_loop import Abandoned, ReachedServer, connected, denied, follow, instead
from .print_mode import FOREVER_S, WORDS, Failed, pictures_seen, typed
from .words import (
    FAILURES,
    MODELS,
    NO_MODEL,
    SIGNED_OUT,
    Chats,
    Faults,
    StoredChat,
    bad_model,
    outcome,
    read_faults,
    tool,
)

# ---- choices

# The choices of a session: mode, model and the model's options. A client with `parameterizedModelPicker` sees base
# models with options; any other client sees one fixed variant of each model.

MODES: Final = ("agent", "plan", "ask")
SWITCH: Final = ("true", "false")
OPTIONS: Final[Mapping[str, Mapping[str, tuple[str, tuple[str, ...]]]]] = {
    "sim-composer": {
        "effort": ("thought_level", ("low", "medium", "high")),
        "fast": ("model_config", SWITCH),
    },
}
"""By base model: the category and the values of each option. The default is the middle of three values, or the first of
two."""
BASES: Final = tuple(model for model in MODELS if not model.startswith(tuple(f"{base}-" for base in OPTIONS)))


class Unknown(Exception):
    """An unknown option, or a value that the option does not have."""


@dataclass(slots=True)
class Choices:
    picker: bool
    mode: str = "agent"
    model: str = "auto"
    options: dict[str, str] = field(default_factory=dict)

    def start(self, model: str) -> "Choices":
        """Choose the base model of the flat id that the program was started with; the id's options are ignored."""
        base = next((one for one in OPTIONS if model.startswith(f"{one}-")), model)
        self._take(base)
        return self

    def _take(self, base: str) -> None:
        self.model = base
        self.options = _defaults(base)

    def _offered(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        return OPTIONS.get(self.model, {})

    @property
    def choice_text(self) -> str:
        return " ".join([self.model, *(f"{key}={value}" for key, value in self.options.items())])

    def about(self) -> dict[str, Any]:
        modes = {"currentModeId": self.mode, "availableModes": [{"id": mode, "name": mode} for mode in MODES]}
        if self.picker:
            return {"modes": modes, "configOptions": self.config()}
        listed = [{"modelId": _fixed(model), "name": MODELS[model]} for model in BASES]
        models = {"currentModelId": _fixed(self.model), "availableModels": listed}
        return {"modes": modes, "models": models, "configOptions": self.config()}

    def config(self) -> list[dict[str, Any]]:
        model, models = (self.model, BASES) if self.picker else (_fixed(self.model), tuple(map(_fixed, BASES)))
        rows = [_select("mode", "mode", self.mode, MODES), _select("model", "model", model, models)]
        if self.picker:
            offered = self._offered().items()
            rows += [_select(key, category, self.options[key], values) for key, (category, values) in offered]
        return rows

    def choose(self, key: str, value: str) -> None:
        row = next((row for row in self.config() if row["id"] == key), None)
        if row is None or value not in [one["value"] for one in row["options"]]:
            raise Unknown(f"Invalid params: {key} cannot be {value}")
        if key == "mode":
            self.mode = value
        elif key == "model":
            self._take(value.partition("[")[0])
        else:
            self.options[key] = value


def _defaults(model: str) -> dict[str, str]:
    return {key: values[len(values) // 3] for key, (_, values) in OPTIONS.get(model, {}).items()}


def _fixed(model: str) -> str:
    return f"{model}[{','.join(f'{key}={value}' for key, value in _defaults(model).items())}]"


def _select(key: str, category: str, current: str, values: tuple[str, ...]) -> dict[str, Any]:
    options = [{"value": value, "name": value} for value in values]
    named = {"id": key, "name": key.capitalize(), "category": category}
    return {**named, "type": "select", "currentValue": current, "options": options}


# ---- acp session

# A session: its chat, its choices and the MCP servers that it reached; and the ways in which a prompt can end early.


class RpcRefused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Cancelled(Exception):
    """The client sent `session/cancel`."""


@dataclass(slots=True)
class Session:
    chat: StoredChat
    choices: Choices
    cwd: str = ""
    servers: Sequence[ReachedServer] = ()
    cancelled: threading.Event = field(default_factory=threading.Event)


# ---- acp


class AcpServer:
    def __init__(
        self,
        chats: Chats,
        *,
        signed_in: bool,
        model: str,
        force: bool,
        home: str,
        mcp: str,
        prompted: Callable[[], None],
    ) -> None:
        """`home`: directory of the approvals of MCP servers. `mcp`: how a session's servers are treated: `used`,
        `ignored`, calls `rejected`, or `old` (the capabilities say that it takes no servers)."""
        self.chats = chats
        self._home = home
        self.mcp = mcp
        self._prompted = prompted
        self._signed_in = signed_in
        self._model = model
        self._picker = False
        self.force = force
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._ids = itertools.count(0)
        self._answers: dict[int, tuple[threading.Event, list[Any]]] = {}
        self._methods: dict[str, Callable[[Mapping[str, Any]], object]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/set_mode": lambda params: self._set(params, "mode", params.get("modeId")),
            "session/set_model": lambda params: self._set(params, "model", params.get("modelId")),
            "session/set_config_option": lambda params: self._set(params, params.get("configId"), params.get("value")),
        }

    def serve(self) -> int:
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if "method" not in message:
                self._answered(message)
            elif "id" not in message:
                self._notified(message["method"], message.get("params") or {})
            elif message["method"] == "session/prompt":
                thread = threading.Thread(target=self._prompt, args=(message["id"], message.get("params") or {}))
                thread.daemon = True
                thread.start()
            else:
                self._reply(message["id"], message["method"], message.get("params") or {})
        return 0

    # ---- messages

    def _write(self, message: Mapping[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            while data:
                data = data[os.write(1, data) :]

    def _reply(self, number: object, method: str, params: Mapping[str, Any]) -> None:
        handle = self._methods.get(method)
        try:
            if handle is None:
                raise RpcRefused(-32601, f"Method not found: {method}")
            self._write({"id": number, "result": handle(params)})
        except RpcRefused as refused:
            self._write({"id": number, "error": {"code": refused.code, "message": str(refused)}})

    def ask(self, session: Session, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request to the client and wait, without a time limit, for its response or a cancel."""
        number = next(self._ids)
        done, answer = self._answers[number] = threading.Event(), []
        self._write({"id": number, "method": method, "params": params})
        while not done.wait(0.02):
            if session.cancelled.is_set():
                raise Cancelled
        return answer[0]

    def _answered(self, message: Mapping[str, Any]) -> None:
        waiting = self._answers.pop(message.get("id", -1), None)
        if waiting is not None:
            waiting[1].append(message.get("result"))
            waiting[0].set()

    def _notified(self, method: str, params: Mapping[str, Any]) -> None:
        session = self._sessions.get(str(params.get("sessionId")))
        if method == "session/cancel" and session is not None:
            session.cancelled.set()

    def update(self, session: Session, kind: str, /, **more: Any) -> None:
        update = {"sessionUpdate": kind, **more}
        self._write({"method": "session/update", "params": {"sessionId": session.chat.id, "update": update}})

    # ---- methods

    def _initialize(self, params: Mapping[str, Any]) -> object:
        meta = (params.get("clientCapabilities") or {}).get("_meta") or {}
        self._picker = meta.get("parameterizedModelPicker") is True
        return {
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": True,
                "mcpCapabilities": {"http": self.mcp != "old", "sse": self.mcp != "old"},
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": False},
                "sessionCapabilities": {} if self.mcp == "old" else {"resume": {}},
            },
            "authMethods": [{"id": "cursor_login", "name": "Cursor login", "description": "Simulated"}],
        }

    def _authenticate(self, params: Mapping[str, Any]) -> object:
        if not self._signed_in:
            raise RpcRefused(-32000, SIGNED_OUT)
        return {}

    def _session(self, params: Mapping[str, Any]) -> Session:
        session = self._sessions.get(str(params.get("sessionId")))
        if session is None:
            raise RpcRefused(-32602, "Session not found")
        return session

    def _new(self, params: Mapping[str, Any]) -> object:
        if not self._signed_in:
            raise RpcRefused(-32000, SIGNED_OUT)
        session = self._opened(self.chats.new(), params)
        return {"sessionId": session.chat.id, **session.choices.about()}

    def _load(self, params: Mapping[str, Any]) -> object:
        session = self._found(params)
        for role, text in session.chat.blocks:
            kind = "agent_message_chunk" if role == "assistant" else "user_message_chunk"
            self.update(session, kind, content={"type": "text", "text": text})
        return session.choices.about()

    def _resume(self, params: Mapping[str, Any]) -> object:
        """Open a known session again. Sends no history, because the client has it."""
        return self._found(params).choices.about()

    def _found(self, params: Mapping[str, Any]) -> Session:
        chat = self.chats.find(str(params.get("sessionId")))
        if chat is None:
            raise RpcRefused(-32602, "Session not found")
        return self._opened(chat, params)

    def _opened(self, chat: StoredChat, params: Mapping[str, Any]) -> Session:
        session = self._sessions[chat.id] = Session(chat, Choices(self._picker).start(self._model))
        self._connect(session, params)
        return session

    def _connect(self, session: Session, params: Mapping[str, Any]) -> None:
        session.cwd = str(params.get("cwd") or "")
        if self.mcp in ("used", "rejected"):
            session.servers = connected(self._home, session.cwd, params.get("mcpServers") or ())

    def _set(self, params: Mapping[str, Any], key: object, value: object) -> object:
        choices = self._session(params).choices
        try:
            choices.choose(str(key), str(value))
        except Unknown as unknown:
            raise RpcRefused(-32602, str(unknown)) from unknown
        return {"configOptions": choices.config()}

    # ---- prompts

    def _prompt(self, number: object, params: Mapping[str, Any]) -> None:
        try:
            session = self._session(params)
            session.cancelled.clear()
            self._prompted()
            self._write({"id": number, "result": {"stopReason": self._turn(session, params.get("prompt") or [])}})
        except RpcRefused as refused:
            self._write({"id": number, "error": {"code": refused.code, "message": str(refused)}})
        except Failed as failed:
            error = {"code": -32603, "message": "Internal error", "data": {"details": str(failed)}}
            self._write({"id": number, "error": error})
        except BrokenPipeError:  # the parent is gone
            os._exit(1)

    def _turn(self, session: Session, blocks: Sequence[Mapping[str, Any]]) -> str:
        prompt = "".join(block.get("text", "") for block in blocks if block.get("type") == "text")
        pictures = sum(block.get("type") == "image" for block in blocks)
        new = text_model.split(prompt)
        faults = read_faults(new)
        if session.choices.model == NO_MODEL:
            raise Failed(bad_model(session.choices.model))
        if faults.has("error"):
            raise Failed(FAILURES.get(faults.text("error"), faults.text("error")))
        if faults.has("close-stdout"):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if faults.has("leave"):
            os._exit(0)
        if faults.has("notice"):
            with self._lock:
                os.write(1, faults.text("notice").encode() + b"\n")
        thinks = session.choices.model == "sim-think"
        said: list[str] = []
        doing = Doing(self, session, faults, prompt, said)
        try:
            if faults.has("choices"):
                doing.say(session.choices.choice_text)
            if pictures and (faults.has("pictures") or not has_script(prompt)):
                doing.say(pictures_seen(pictures))
            if session.servers:
                follow(doing, [*typed(session.chat.blocks), *new], thinks=thinks)
            else:
                for step in text_model.answer([*typed(session.chat.blocks), *new], thinks=thinks):
                    doing.step(step)
        except (Cancelled, Abandoned):
            if not faults.has("ignore-cancel"):
                return "cancelled"
            time.sleep(FOREVER_S)
        session.chat.blocks = [*session.chat.blocks, *new, *doing.earlier, ("assistant", "".join(said))]
        self.chats.save(session.chat)
        return faults.text("stop-reason") or "end_turn"


@dataclass(slots=True)
class Doing:
    server: AcpServer
    session: Session
    faults: Faults
    prompt: str
    said: list[str]
    results: list[str] = field(default_factory=list)
    calls: int = 0
    earlier: list[tuple[str, str]] = field(default_factory=list)
    """Completed steps of this prompt, in their stored form."""

    def say(self, text: str) -> None:
        self._pause(self.faults.number("slow", 0.0))
        self.said.append(text)
        self._chunk("agent_message_chunk", text)

    def _chunk(self, kind: str, text: str) -> None:
        self.server.update(self.session, kind, content={"type": "text", "text": text})

    def _pause(self, milliseconds: float) -> None:
        if self.faults.has("ignore-cancel"):
            time.sleep(milliseconds / 1000)
            return
        if self.session.cancelled.wait(milliseconds / 1000) if milliseconds else self.session.cancelled.is_set():
            raise Cancelled

    def step(self, step: Step) -> ToolUse | None:
        """Returns the call that the model makes in place of its own rejected tool, if the script has one."""
        match step:
            case Say(text):
                for word in WORDS.findall(text):
                    self.say(word)
            case ScriptStream():
                for index in range(step.count):
                    self.say(step.delta(index))
                    self._pause(step.delay_ms)
            case Think(text):
                for word in WORDS.findall(text):
                    self._chunk("agent_thought_chunk", word)
            case Wait(delay_ms):
                self._pause(delay_ms)
            case Exec(kind, args):
                if not self._exec(kind, args):
                    return instead(step, self.session.cwd, self.session.servers)
            case Query(kind, _):
                self._query(kind)
            case Result():
                self.say("\n".join(self.results))
            case Fail(code):
                raise Failed(FAILURES[code])
            case Drop(times):
                if self.server.chats.attempts(self.prompt) <= times:
                    os.kill(os.getpid(), signal.SIGKILL)
            case Hang():
                while True:
                    self.server.update(self.session, "session_info_update")
                    self._pause(1000)
            case Mute():
                self._pause(FOREVER_S * 1000)
            case _:
                pass
        return None

    def _exec(self, kind: str, args: Mapping[str, Any]) -> bool:
        """Run a built-in tool and show its call. False if the tool was rejected."""
        own = tool(kind)
        self.calls += 1
        call = f"call_{self.calls}"
        about = {"toolCallId": call, "title": f"{kind} {next(iter(args.values()), '')}".strip(), "kind": own.kind}
        self.server.update(self.session, "tool_call", **about, status="pending", rawInput=dict(args))
        self._pause(self.faults.number("slow-tool", 0.0))
        if own.gated and self.session.choices.mode != "agent":
            self.results, status = [f"rejected: not allowed in {self.session.choices.mode} mode"], "failed"
        elif denied(self.session.cwd, own.kind):
            self.results, status = ["rejected: a rule of the project denies it"], "failed"
        elif own.gated and not self.server.force and not self._allowed(about):
            self.results, status = ["rejected by the client"], "failed"
        else:
            self.results, status = [outcome(kind, args)[1]], "completed"
        self.server.update(self.session, "tool_call_update", toolCallId=call, status=status)
        return status == "completed"

    def _allowed(self, about: Mapping[str, Any]) -> bool:
        options = [
            {"optionId": name.replace("_", "-"), "name": name, "kind": name}
            for name in ("allow_once", "allow_always", "reject_once")
        ]
        params = {"sessionId": self.session.chat.id, "toolCall": about, "options": options}
        answer = self.server.ask(self.session, "session/request_permission", params) or {}
        return str(answer.get("outcome", {}).get("optionId", "")).startswith("allow")

    def _query(self, kind: str) -> None:
        params = {"sessionId": self.session.chat.id, "title": kind, "questions": []}
        answer = self.server.ask(self.session, f"cursor/{kind}", params)
        self.results = [f"answered: {json.dumps(answer, sort_keys=True)}"]
