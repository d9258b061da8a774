"""The backend `cli`: Cursor through its official program, with the program's login. For each turn it chooses the
workspace, print mode or ACP (tried once for each build), and whether a chat continues; it lists models and the status.

`print_turn` and `acp_turn` run the turns. Client tools are native where ACP and the program allow it (`native_tools`,
`acp_tool_turn`); otherwise `text_protocol` wraps this backend.
"""

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from ...core.errors import ErrorKind, GatewayError, bad_request
from ...core.event_buffer import failed_turn
from ...core.request import TurnRequest, in_place
from ...core.turn import Abilities, BackendStatus, ModelInfo, Snapshot, Standing, Turn
from ...processes.child import Command
from ...processes.child_group import Output, run_once
from ...sessions.loop_guard import GuardSettings, LiveGuard
from ..builtin_tools.local.workspaces import HEADER, workspace_of
from .acp_agent import AcpSetup
from .acp_tool_turn import VIA, AcpToolTurn, TurnOffer
from .acp_translate import AcpTranslator
from .acp_turn import AcpLaunch, AcpPool, AcpTurn
from .faults import Circumstances, classify
from .models import BUILT_IN, CliAccount, ModelList, ModelWish, read_models, with_aliases
from .native_tools import ClientTools, ToolHandover
from .print_translate import PrintTranslator, Showing
from .print_turn import Launch, PrintTurn
from .process import AgentChildGroup, Scratch, Slots
from .program import (
    AGAIN_S,
    CliLimits,
    Mode,
    Program,
    Work,
    acp_arguments,
    checked_model,
    child_environment,
    find_program,
    not_found,
    print_arguments,
    safe_chat_id,
)
from .prompt import ChatFiles, CliChat, Prompt, read_chat, render, tail
from .tool_server import SERVER

log = logging.getLogger(__name__)

TransportName = Literal["auto", "acp", "print"]


@dataclass(frozen=True, slots=True)
class CliSetup:
    program: str
    """The program's name or path; empty means that it is searched for."""
    environment: Mapping[str, str]
    data_dir: Path
    version: str
    transport: TransportName = "auto"
    mode: Mode = "ask"
    force: bool = False
    showing: Showing = "hidden"
    workspace: Path | None = None
    workspaces: Sequence[Path] = ()
    api_key: str | None = None
    tools: ToolHandover = "auto"
    limits: CliLimits = field(default_factory=CliLimits)
    guard: GuardSettings = field(default_factory=GuardSettings)
    clean: Callable[[str], str] = str
    """Removes secrets from the program's messages."""


@dataclass(frozen=True, slots=True)
class _CliOpening:
    """What a turn begins with, in print mode and ACP."""

    program: Program
    work: Work
    prompt: Prompt
    chat: CliChat | None
    """The chat to continue."""
    parent: bytes | None
    at: Circumstances
    reopened: int
    """How many new runs earlier turns of the request opened."""


class CursorCliBackend:
    name = "cli"
    standing: Standing = "official"

    def __init__(self, setup: CliSetup, clock: Callable[[], float] = time.time) -> None:
        limits = setup.limits
        self.abilities = Abilities(
            client_tools="text" if setup.tools == "text" or setup.transport == "print" else "either",
            parks=False,
            continues=True,
            images=True,
            reasoning=True,
            usage=setup.transport == "print",
        )
        self.children = AgentChildGroup()
        self._setup = setup
        self._clock = clock
        self._environment = child_environment(setup.environment, setup.api_key)
        self._slots = Slots(limits.processes, limits.queue, retry_after=limits.retry_after)
        self._scratch = Scratch(setup.data_dir / "cursor-agent" / "scratch")
        self._chats = ChatFiles(setup.data_dir / "cursor-agent" / "chats")
        self._account = CliAccount(
            self.ask, time.monotonic, limit=limits.auth_check, fresh=limits.auth_fresh, by_key=self._by_key
        )
        self._models = ModelList(
            setup.data_dir / "cursor-agent" / "models.json", self._list_models, clock, fresh=limits.models_fresh
        )
        self._pool = AcpPool(
            self.children, self._prepare, processes=limits.processes, idle=limits.idle, max_sessions=limits.max_sessions
        )
        self._client_tools = ClientTools(
            self._scratch, self._environment.get("HOME", ""), setup.version, limits.parked, own_tools=setup.force
        )
        self._acp_builds: dict[object, tuple[bool, float]] = {}
        """Build -> (whether its ACP works, until when this answer is valid)."""
        self._deciding = asyncio.Lock()

    @property
    def _by_key(self) -> bool:
        return "CURSOR_API_KEY" in self._environment or "CURSOR_AUTH_TOKEN" in self._environment

    # ---- calls from the gateway

    async def models(self) -> Sequence[ModelInfo]:
        return with_aliases(await self._models.models())

    async def status(self) -> BackendStatus:
        try:
            return await self._account.status()
        except GatewayError as missing:
            return BackendStatus(None, str(missing))

    async def start(self, request: TurnRequest, snapshot: Snapshot | None = None) -> Turn:
        try:
            program = self._program()
            await self._account.require()
        except GatewayError as refused:
            return failed_turn(refused)
        chat = read_chat(snapshot)
        work = self._work(request, chat)
        via = VIA if request.tools else "acp" if await self._takes_acp(program, work) else "print"
        parent = snapshot.parent if snapshot is not None else None
        if chat is not None:
            if chat != CliChat(chat.id, work.workspace, work.mode, via, chat.turns) or not safe_chat_id(chat.id):
                return failed_turn(GatewayError(ErrorKind.TURN_GONE, "The chat was had in another place or mode."))
            if not self._chats.take(chat):
                return failed_turn(GatewayError(ErrorKind.TURN_GONE, "The chat has gone on since, or broke off."))
            work = replace(work, resume=chat.id)
        messages = in_place(request.messages)
        whole = render(messages)
        prompt = render(tail(messages)) if work.resume else whole
        at = Circumstances(work.model, prompt_chars=len(whole.text), now=self._clock(), clean=self._setup.clean)
        opening = _CliOpening(program, work, prompt, chat, parent, at, request.reopened)
        return self._print(opening) if via == "print" else self._acp(opening, request)

    async def why_text(self, request: TurnRequest, snapshot: Snapshot | None) -> str:
        """Why the tools of this request are sent as text; empty if the program calls them itself."""
        setup = self._setup
        if setup.tools == "text" or setup.transport == "print" or setup.mode == "plan":
            return "the settings say so"
        if request.workspace or setup.workspace is not None:
            return "a workspace is named, and nothing is written there"
        try:
            program = self._program()
            await self._account.require()
            if not await self._takes_acp(program, self._work(request, read_chat(snapshot))):
                return "this build has no ACP mode"
        except GatewayError as refused:
            return refused.message  # the turn fails with the same message
        return self._client_tools.refusal(program.build)

    async def aclose(self) -> None:
        await self._pool.aclose()
        await self.children.aclose()
        await self._client_tools.aclose()

    # ---- the two ways

    def _print(self, opening: _CliOpening) -> Turn:
        work = opening.work
        slot = self._slots.join()
        text, pictures = opening.prompt.text, None
        if opening.prompt.images:
            try:
                text, pictures = self._with_files(opening.prompt, Path(work.workspace))
            except BaseException:
                slot.leave()
                raise
        launch = Launch(
            self._command(opening.program, print_arguments(work), work.workspace),
            text.encode("utf-8", "replace"),
            opening.chat or CliChat("", work.workspace, work.mode, "print"),
            opening.parent,
            pictures,
        )

        def translate() -> PrintTranslator:
            guard = self._guard(opening, tells=False)
            return PrintTranslator(
                showing=self._setup.showing, at=opening.at, resuming=work.resume, guard=guard, prompt=text
            )

        limits, keep = self._setup.limits, self._chats.keep
        return PrintTurn(
            self.name, launch, translate, slot, self.children, limits, self._failed, keep, opening.reopened
        )

    def _with_files(self, prompt: Prompt, workspace: Path) -> tuple[str, Path]:
        """Print mode takes only text: images become files, and the prompt names them. The files are written only in
        the gateway's own directories, never in a user's workspace."""
        if not self._scratch.is_ours(workspace):
            raise GatewayError(
                ErrorKind.UNSUPPORTED,
                "cursor-agent takes no images in print mode when it works in a named workspace.",
                hint="Use --cli-transport acp, or send no images.",
            )
        folder = self._scratch.keep_images(workspace, prompt.images)
        files = "\n".join(str(file) for file in sorted(folder.iterdir()))
        return f"{prompt.text}\n\nThe images are in these files; look at them:\n{files}", folder

    def _work(self, request: TurnRequest, chat: CliChat | None) -> Work:
        setup, model = self._setup, self._model(request.model)
        if request.tools:  # agent mode may call the client's tools; its own tools are denied elsewhere
            return Work(model, str(self._client_tools.workspace()), "agent", setup.force and setup.mode == "agent")
        return Work(model, str(self._workspace(request, chat)), setup.mode, setup.force)

    def _acp(self, opening: _CliOpening, request: TurnRequest) -> Turn:
        turns = opening.chat.turns if opening.chat else 0
        work, wish = opening.work, self._wish(request)
        launch = AcpLaunch(work, opening.program.build, opening.prompt, turns, opening.parent, opening.at, wish)
        chars = opening.at.prompt_chars
        translator = AcpTranslator(showing=self._setup.showing, prompt_chars=chars, guard=self._guard(opening))
        slot = self._slots.join()
        limits, keep = self._setup.limits, self._chats.keep
        parts = (self.name, launch, translator, slot, self._pool, limits, self._failed, keep, opening.reopened)
        if not request.tools:
            return AcpTurn(*parts)
        offer = TurnOffer(request.tools, request.tool_choice)
        return AcpToolTurn(*parts, offer=offer, host=self._client_tools)

    def _wish(self, request: TurnRequest) -> ModelWish:
        """The wish for the session's model. The name takes precedence, then `parameters`, then effort and thinking."""
        name, said = self._model(request.model), dict[str, str]()
        if request.effort:
            said["effort"] = request.effort
        if request.thinking is not None or f"{name}-thinking" in self._models.known:
            said["thinking"] = str(bool(request.thinking)).lower()
        return ModelWish(name, tuple((said | dict(request.parameters)).items()))

    def _guard(self, opening: _CliOpening, *, tells: bool = True) -> LiveGuard:
        return LiveGuard(self._setup.guard, time.monotonic, opening.at.prompt_chars, tells=tells)

    async def _takes_acp(self, program: Program, work: Work) -> bool:
        """Whether to use ACP. With `auto` each build of the program is tried once."""
        if self._setup.transport != "auto":
            return self._setup.transport == "acp"
        async with self._deciding:
            known, until = self._acp_builds.get(program.build, (False, 0.0))
            if time.monotonic() >= until:
                known, until = await self._proves_acp(program, work)
                self._acp_builds = {program.build: (known, until)}
                log.info("cursor-agent is used in %s mode", "ACP" if known else "print")
            return known

    async def _proves_acp(self, program: Program, work: Work) -> tuple[bool, float]:
        """(whether ACP works, until when this answer is valid). A failure may be temporary, so it is tried again."""
        try:
            # A build without ACP would take `acp` as a prompt, so its help is checked first.
            offered = await self.ask(("--help",), self._setup.limits.call)
            if not any(line.split()[:1] == ["acp"] for line in offered.stdout.splitlines()):
                return False, math.inf
            self._pool.give(await self._pool.take(work, program.build))
        except (GatewayError, TimeoutError) as failure:
            log.warning("cursor-agent's ACP mode is of no use now, print mode is taken: %s", failure)
            return False, time.monotonic() + AGAIN_S
        return True, math.inf

    def _prepare(self, work: Work) -> AcpSetup:
        limits = self._setup.limits
        return AcpSetup(
            command=self._command(self._program(), acp_arguments(work), work.workspace),
            mode=work.mode,
            model=work.model,
            allow=work.force and work.mode == "agent",
            version=self._setup.version,
            sign_in=not self._by_key,
            call_timeout=limits.call,
            line_bytes=limits.line_bytes,
            clean=self._setup.clean,
            server=SERVER if self._client_tools.is_place(work.workspace) else "",
            learn=self._models.learn,
        )

    # ---- the program

    def _program(self) -> Program:
        path = find_program(self._setup.program, self._environment)
        if path is None:
            raise not_found(self._setup.program)
        return Program(path, self._environment)

    def _command(self, program: Program, arguments: Sequence[str], cwd: str) -> Command:
        return Command((program.path, *arguments), cwd, program.environment)

    async def ask(self, arguments: Sequence[str], limit: float) -> Output:
        """Run the program for a short answer. Raises TimeoutError."""
        command = self._command(self._program(), arguments, str(self._scratch.shared()))
        return await run_once(self.children, command, timeout=limit)

    async def _list_models(self) -> Sequence[ModelInfo]:
        output = Output(0, "", "")
        for arguments in (("models",), ("--list-models",)):
            output = await self.ask(arguments, self._setup.limits.call)
            if found := read_models(output.stdout):
                return found
        at = Circumstances(exit_code=output.code, clean=self._setup.clean)
        raise classify(f"{output.stderr}\n{output.stdout}", at)

    def _model(self, name: str) -> str:
        known = self._models.known
        return checked_model(name if name in known else "auto" if name in BUILT_IN else name)

    def _workspace(self, request: TurnRequest, chat: CliChat | None) -> Path:
        setup = self._setup
        if request.workspace or request.home or setup.workspace is not None:
            chosen = workspace_of(request, setup.workspace, setup.workspaces)
            if chosen == Path(os.path.abspath(os.sep)):
                raise bad_request(
                    "The root of the file system cannot be a workspace. Name a project's directory.", param=HEADER
                )
            return chosen
        if setup.mode != "agent":
            return self._scratch.shared()
        if chat is not None and self._scratch.is_ours(Path(chat.workspace)) and Path(chat.workspace).is_dir():
            return Path(chat.workspace)
        return self._scratch.own()

    def _failed(self, error: GatewayError) -> None:
        if error.kind is ErrorKind.SIGNED_OUT:
            self._account.forget()
