"""One warm ACP process: handshake, sign-in, sessions (new, resumed, loaded), mode, model and its options,
prompts with images, cancel. Each call has a timeout; a line that is too long ends the process. Knows no turns.

Speaks plain ACP, so any ACP agent works; only the methods with the prefix `EXTENSION` and the name of the sign-in
method are specific to Cursor.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import msgspec

from ...core.errors import ErrorKind, GatewayError
from ...processes.child import Child, Command, Exit
from ...processes.lines import LineReader, TooLong
from .faults import Circumstances, classify
from .models import (
    CAPABILITY,
    MOST_CHOICES,
    NO_WISH,
    ModelWish,
    Parameters,
    SessionOption,
    model_option,
    model_parameters,
    next_choice,
    read_options,
)
from .process import AgentChildGroup
from .prompt import Prompt

# ---- JSON-RPC 2.0, one message per line, in both directions: matches answers to requests by id, answers each request
# of the agent, reports lines that are not messages. Knows no pipes and no methods.
#
# Input: lines, and the gateway's requests. Output: lines through `send`, answers through futures. An agent waits for an
# answer without a time limit.

log = logging.getLogger(__name__)

UNKNOWN_METHOD: Final = -32601
INTERNAL: Final = -32603


@dataclass(slots=True, eq=False)
class RpcError(Exception):
    code: int
    message: str
    data: object = None

    def __str__(self) -> str:
        return f"{self.message} {self.data if isinstance(self.data, str) else _spell(self.data)}".strip()


def _spell(data: object) -> str:
    return msgspec.json.encode(data).decode() if data is not None else ""


class RpcHandler(Protocol):
    def notified(self, method: str, params: Mapping[str, Any]) -> None: ...

    def asked(self, method: str, params: Mapping[str, Any]) -> object:
        """Answer the agent's request with the returned result; raises RpcError to refuse it."""
        ...


class Rpc:
    def __init__(self, send: Callable[[bytes], None], handler: RpcHandler) -> None:
        self._send = send
        self._handler = handler
        self._next = 0
        self._open: dict[int, asyncio.Future[Any]] = {}

    def request(self, method: str, params: Mapping[str, Any]) -> "asyncio.Future[Any]":
        """Send a request. The future resolves to the result, or raises RpcError or the error given to `fail`."""
        self._next += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_looked_at)
        self._open[self._next] = answer
        self._write({"id": self._next, "method": method, "params": params})
        return answer

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self._write({"method": method, "params": params})

    def fail(self, error: Exception) -> None:
        waiting, self._open = self._open, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(error)

    def feed(self, line: bytes) -> bool:
        """Process one line. Returns False if it is not a message."""
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if not isinstance(message, dict):
            return False
        method = message.get("method")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if not isinstance(method, str):
            self._answered(message)
        elif "id" in message:
            self._asked(message["id"], method, params)
        else:
            self._handler.notified(method, params)
        return True

    def _answered(self, message: Mapping[str, Any]) -> None:
        number = message.get("id")
        answer = self._open.pop(number, None) if isinstance(number, int) else None
        if answer is None or answer.done():
            return
        error = message.get("error")
        if error is None:
            answer.set_result(message.get("result"))
            return
        error = error if isinstance(error, dict) else {}
        code, text = error.get("code"), error.get("message")
        answer.set_exception(
            RpcError(code if isinstance(code, int) else INTERNAL, str(text or "no reason given"), error.get("data"))
        )

    def _asked(self, number: object, method: str, params: Mapping[str, Any]) -> None:
        try:
            self._write({"id": number, "result": self._handler.asked(method, params)})
        except RpcError as refused:
            self._write({"id": number, "error": {"code": refused.code, "message": refused.message}})

    def _write(self, message: Mapping[str, Any]) -> None:
        self._send(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")


def _looked_at(answer: "asyncio.Future[Any]") -> None:
    """Mark the exception as retrieved: an answer that no caller awaits is not logged as an error."""
    if not answer.cancelled():
        answer.exception()


# ---- Answers to an ACP agent's requests: permissions by setting, questions skipped, plans cancelled, unknown methods
# refused. Pure.
#
# No person can answer at a gateway.

EXTENSION: Final = "cursor/"
"""The prefix of Cursor's own methods."""
_ALLOW: Final = ("allow_once", "allow_always")
_REJECT: Final = ("reject_once", "reject_always")

_FIXED: Final[Mapping[str, object]] = {
    "cursor/ask_question": {"outcome": {"outcome": "skipped"}},
    "cursor/create_plan": {"outcome": {"outcome": "cancelled"}},
}


def answer(method: str, params: Mapping[str, Any], *, allow: bool) -> object:
    """The result for the agent's request; raises RpcError for a method that the gateway does not support."""
    if method == "session/request_permission":
        return {"outcome": _permission(params.get("options"), _ALLOW if allow else _REJECT)}
    if method in _FIXED:
        return _FIXED[method]
    if method.startswith(EXTENSION):
        return {}  # sent like notifications, with an id that wants an answer
    raise RpcError(UNKNOWN_METHOD, f"{method} is not offered by this client")


def calls_server(params: Mapping[str, Any], server: str) -> bool:
    """Whether a permission request is about a tool of this MCP server. The kind excludes commands and edits with a
    similar title."""
    call = params.get("toolCall")
    if not server or not isinstance(call, dict) or call.get("kind") not in (None, "other"):
        return False
    return str(call.get("title") or "").startswith((f"{server}-", f"{server}:"))


def _permission(options: object, kinds: tuple[str, ...]) -> Mapping[str, str]:
    offered = [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []
    for kind in kinds:
        for option in offered:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return {"outcome": "selected", "optionId": option["optionId"]}
    return {"outcome": "cancelled"}


PROTOCOL: Final = 1
LOGIN_METHOD: Final = "cursor_login"
NOISE_LINES: Final = 32

Update = Callable[[Mapping[str, Any]], None]
Servers = Sequence[Mapping[str, Any]]
"""MCP servers for a session, in ACP's form."""


@dataclass(frozen=True, slots=True)
class AcpSetup:
    command: Command
    mode: str
    """The session mode to choose; empty leaves the agent's own."""
    model: str
    allow: bool
    """Whether permission requests are granted."""
    version: str
    sign_in: bool
    """Call `authenticate`, which is not needed with an API key."""
    call_timeout: float
    line_bytes: int
    clean: Callable[[str], str] = str
    """Removes secrets from the program's messages."""
    server: str = ""
    """The name of the gateway's MCP server, whose calls are allowed; empty if there is none."""
    learn: Callable[[str, Parameters], None] = lambda model, parameters: None
    """Receives a model's options."""


class AcpAgent:
    def __init__(self, setup: AcpSetup) -> None:
        self.sessions: dict[str, tuple[SessionOption, ...]] = {}
        """Sessions that this process holds in memory, with their options."""
        self.can_load = self.can_resume = self.takes_images = self.takes_mcp = False
        self._setup = setup
        self._rpc = Rpc(self._send, self)
        self._lines = LineReader(setup.line_bytes)
        self._child: Child | None = None
        self._listeners: dict[str, Update] = {}
        self._noise: list[str] = []
        self._gone: GatewayError | None = None

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive and self._gone is None

    async def start(self, children: AgentChildGroup) -> None:
        """Start the process and its handshake. Raises GatewayError if they fail; then no process is left."""
        self._child = await children.start(self._setup.command, self)
        try:
            await self._handshake()
        except BaseException:
            await self._child.aclose()
            raise

    async def _handshake(self) -> None:
        client = {"name": "caretway", "title": "Caretway", "version": self._setup.version}
        ours = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False, "_meta": {CAPABILITY: True}}
        found = await self._call(
            "initialize", {"protocolVersion": PROTOCOL, "clientCapabilities": ours, "clientInfo": client}
        )
        if found.get("protocolVersion") != PROTOCOL:
            raise GatewayError(
                ErrorKind.UPSTREAM_PROTOCOL,
                f"cursor-agent speaks version {found.get('protocolVersion')} of ACP, not {PROTOCOL}.",
                hint="Use --cli-transport print.",
            )
        able = _object(found.get("agentCapabilities"))
        of_sessions = _object(able.get("sessionCapabilities"))
        self.can_load = able.get("loadSession") is True
        self.can_resume = "resume" in of_sessions
        self.takes_images = _object(able.get("promptCapabilities")).get("image") is True
        self.takes_mcp = _object(able.get("mcpCapabilities")).get("http") is True
        methods = found.get("authMethods")
        ids = [_object(method).get("id") for method in methods] if isinstance(methods, list) else []
        if self._setup.sign_in and LOGIN_METHOD in ids:
            await self._call("authenticate", {"methodId": LOGIN_METHOD})

    # ---- sessions

    async def new_session(self, cwd: str, servers: Servers = (), wish: ModelWish = NO_WISH) -> str:
        made = await self._call("session/new", {"cwd": cwd, "mcpServers": servers})
        session = made.get("sessionId")
        if not isinstance(session, str) or not session:
            raise GatewayError(ErrorKind.UPSTREAM_PROTOCOL, "cursor-agent opened a session without an id.")
        await self._choose_mode(session, _object(made.get("modes")))
        await self._choose_model(session, _object(made.get("models")))
        await self._set_options(session, read_options(made), wish)
        return session

    async def load_session(self, session: str, cwd: str, servers: Servers = (), wish: ModelWish = NO_WISH) -> None:
        """Resume the session, or load it if the agent cannot resume, which repeats the whole history. Raises
        GatewayError(TURN_GONE) if the agent no longer has the session."""
        if not self.can_load and not self.can_resume:
            raise GatewayError(ErrorKind.TURN_GONE, "cursor-agent cannot load an earlier session.")
        method = "session/resume" if self.can_resume else "session/load"
        try:
            loaded = await self._call(method, {"sessionId": session, "cwd": cwd, "mcpServers": servers})
        except GatewayError as refused:
            if self.alive and refused.kind is not ErrorKind.SIGNED_OUT:
                raise GatewayError(ErrorKind.TURN_GONE, f"The session cannot be loaded: {refused.message}") from refused
            raise
        await self._choose_mode(session, _object(loaded.get("modes")))
        await self._set_options(session, read_options(loaded), wish)

    async def go_on(self, session: str, wish: ModelWish) -> None:
        """Continue a session in memory with the model of `wish`."""
        await self._set_options(session, self.sessions[session], wish)

    async def _choose_mode(self, session: str, modes: Mapping[str, Any]) -> None:
        wanted = self._setup.mode
        if not wanted or modes.get("currentModeId") == wanted:
            return
        await self._call("session/set_mode", {"sessionId": session, "modeId": wanted})

    async def _choose_model(self, session: str, models: Mapping[str, Any]) -> None:
        """Choose the process's model if the session has another. Ids in a session may have parameters in brackets."""
        wanted, current = self._setup.model, str(models.get("currentModelId") or "")
        if wanted in ("", "auto", "default") or _base(current) == _base(wanted):
            return
        offered = models.get("availableModels")
        ids = [str(_object(model).get("modelId") or "") for model in offered] if isinstance(offered, list) else []
        found = next((name for name in ids if name == wanted or _base(name) == wanted), None)
        if found is not None:
            await self._call("session/set_model", {"sessionId": session, "modelId": found})

    async def _set_options(self, session: str, options: tuple[SessionOption, ...], wish: ModelWish) -> None:
        made: set[str] = set()
        while len(made) < MOST_CHOICES and (choice := next_choice(wish, options, made)) is not None:
            made.add(choice[0])
            params = {"sessionId": session, "configId": choice[0], "value": choice[1]}
            try:
                now = read_options(await self._call("session/set_config_option", params))
            except GatewayError as refused:
                if not self.alive or choice[0] == getattr(model_option(options), "id", ""):
                    raise
                log.info("cursor-agent does not take %s=%s: %s", *choice, refused.message)
                continue
            options = now or tuple(replace(one, current=choice[1]) if one.id == choice[0] else one for one in options)
        self.sessions[session] = options
        if (model := model_option(options)) is not None:
            self._setup.learn(model.current, model_parameters(options))

    # ---- prompts

    def prompt(self, session: str, prompt: Prompt, update: Update) -> "asyncio.Future[Any]":
        """Send a prompt. The future resolves when the whole turn is over, without a time limit."""
        blocks: list[Mapping[str, Any]] = [{"type": "text", "text": prompt.text}]
        blocks += [
            {"type": "image", "mimeType": image.mime_type, "data": base64.b64encode(image.data).decode()}
            for image in prompt.images
        ]
        self._listeners[session] = update
        answered = self._rpc.request("session/prompt", {"sessionId": session, "prompt": blocks})
        answered.add_done_callback(lambda _: self._listeners.pop(session, None))
        return answered

    def cancel(self, session: str) -> None:
        self._rpc.notify("session/cancel", {"sessionId": session})

    def pause(self) -> None:
        if self._child is not None:
            self._child.pause()

    def resume(self) -> None:
        if self._child is not None:
            self._child.resume()

    async def aclose(self) -> None:
        if self._child is not None:
            await self._child.aclose()

    # ---- the process

    async def _call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._gone is not None:
            raise self._gone
        try:
            async with asyncio.timeout(self._setup.call_timeout):
                return _object(await self._rpc.request(method, params))
        except TimeoutError as late:
            raise GatewayError(ErrorKind.TIMEOUT, f"cursor-agent did not answer {method} in time.") from late
        except RpcError as refused:
            raise self.explain(refused) from refused

    def explain(self, refused: RpcError, at: Circumstances | None = None) -> GatewayError:
        return classify(str(refused), at or Circumstances(model=self._setup.model, clean=self._setup.clean))

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "session/update" and (listener := self._listeners.get(str(params.get("sessionId")))) is not None:
            listener(_object(params.get("update")))
        elif method.startswith(EXTENSION):
            self._tell(method, params)

    def _tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Forward Cursor's own messages about a prompt (a subagent, a plan, a question). A message without a session id
        belongs to the only running prompt."""
        session = params.get("sessionId")
        heard = [update for name, update in self._listeners.items() if session in (None, name)]
        if len(heard) == 1:
            heard[0]({**params, "sessionUpdate": method})

    def asked(self, method: str, params: Mapping[str, Any]) -> object:
        if method.startswith(EXTENSION):
            self._tell(method, params)
        return answer(method, params, allow=self._setup.allow or calls_server(params, self._setup.server))

    def _send(self, line: bytes) -> None:
        if self._child is not None:
            self._child.write(line)

    def data(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if isinstance(line, TooLong):
                self._lose(
                    GatewayError(
                        ErrorKind.UPSTREAM_PROTOCOL,
                        f"cursor-agent wrote {line}.",
                        hint="Ask for less at a time.",
                    )
                )
                return
            if not self._rpc.feed(line) and len(self._noise) < NOISE_LINES:
                self._noise.append(line.decode("utf-8", "replace")[:2000])

    def ended(self, exit_: Exit) -> None:
        said = "\n".join([exit_.stderr, *self._noise])
        setup = self._setup
        self._lose(classify(said, Circumstances(model=setup.model, exit_code=exit_.code, clean=setup.clean)))

    def _lose(self, error: GatewayError) -> None:
        if self._gone is None:
            self._gone = error
        if self._child is not None:
            self._child.terminate()
        self._rpc.fail(self._gone)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _base(model: str) -> str:
    return model.partition("[")[0]
