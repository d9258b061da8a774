"""The stand-in by itself: what it prints, and that its ACP and our half of it are ACP by the published schema."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from acp import schema
from pydantic import BaseModel

from caretway.backends.cli.acp_agent import AcpAgent, AcpSetup
from caretway.backends.cli.models import ModelWish
from caretway.backends.cli.process import AgentChildGroup
from caretway.backends.cli.prompt import Prompt
from caretway.core.request import Image
from caretway.processes.child import Command
from contract.cursor_cli.stand_in import StandIn

PRINT: Final = ("-p", "--trust", "--output-format")


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path).install()


def run(stand_in: StandIn, *arguments: str, prompt: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [stand_in.program, *arguments], input=prompt, capture_output=True, text=True, timeout=20, check=False
    )


def records(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def test_formats(stand_in: StandIn) -> None:
    said = "sim: say One two\nsim: exec read {}\nsim: say three"
    assert run(stand_in, *PRINT, "text", prompt=said).stdout == "One twothree\n"
    (whole,) = records(run(stand_in, *PRINT, "json", prompt=said).stdout)
    assert (whole["type"], whole["subtype"], whole["result"]) == ("result", "success", "One twothree")
    assert set(whole["usage"]) == {"inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"}
    plain = records(run(stand_in, *PRINT, "stream-json", prompt=said).stdout)
    texts = [record["message"]["content"][0]["text"] for record in plain if record["type"] == "assistant"]
    assert texts == ["One two", "three"]
    partial = records(run(stand_in, *PRINT, "stream-json", "--stream-partial-output", prompt=said).stdout)
    forms = [
        ("timestamp_ms" in record, "model_call_id" in record, record["message"]["content"][0]["text"])
        for record in partial
        if record["type"] == "assistant"
    ]
    assert forms == [
        (True, False, "One "),
        (True, False, "two"),
        (True, True, "One two"),
        (True, False, "three"),
        (False, False, "three"),
    ]


def test_prompt_as_an_argument(stand_in: StandIn) -> None:
    assert run(stand_in, *PRINT, "text", "sim: say hi").stdout == "hi\n"


def test_trust_failure_and_success(stand_in: StandIn) -> None:
    refused = run(stand_in, "-p", "--output-format", "stream-json", prompt="x")
    assert (refused.returncode, refused.stdout[:24]) == (0, "Workspace Trust Required")
    failed = run(stand_in, *PRINT, "json", prompt="sim: fail usage_limit")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "usage limit" in failed.stderr


def test_chats(stand_in: StandIn) -> None:
    chat = run(stand_in, "create-chat").stdout.strip()
    run(stand_in, *PRINT, "json", "--resume", chat, prompt="sim: say one")
    (told,) = records(run(stand_in, *PRINT, "json", f"--resume={chat}", prompt="sim: recall").stdout)
    assert told["session_id"] == chat
    assert told["result"].startswith("1 earlier")
    (other,) = records(run(stand_in, *PRINT, "json", "--resume", "never-heard-of", prompt="sim: recall").stdout)
    assert other["session_id"] != "never-heard-of"
    assert other["result"].startswith("0 earlier")


def test_people(stand_in: StandIn) -> None:
    assert "✓ Logged in as" in run(stand_in, "status").stdout
    run(stand_in, "logout")
    assert "Not logged in" in run(stand_in, "status").stdout
    assert json.loads(run(stand_in, "whoami", "--format", "json").stdout)["isAuthenticated"] is False
    assert run(stand_in, "models").returncode == 1
    login = run(stand_in, "login").stdout
    assert "https://cursor.com/" in login and "Login successful" in login
    assert "sim-auto - Sim Auto  (default)" in run(stand_in, "--list-models").stdout


@pytest.mark.seed("D15")
def test_caretway_login_relays_the_programs_own(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.sign_out()
    flags = ("--backend", "cli", "--agent-bin", str(stand_in.program), "--data-dir", str(tmp_path / "data"))
    login = subprocess.run(
        [sys.executable, "-m", "caretway", "login", *flags], capture_output=True, text=True, timeout=30, check=False
    )
    assert login.returncode == 0, login.stderr
    assert "https://cursor.com/loginDeepControl" in login.stdout
    assert "Logged in" in run(stand_in, "status").stdout


# ---------------------------------------------------------------------------------------------- ACP, judged

OURS: Final[Mapping[str, type[BaseModel]]] = {
    "initialize": schema.InitializeRequest,
    "authenticate": schema.AuthenticateRequest,
    "session/new": schema.NewSessionRequest,
    "session/load": schema.LoadSessionRequest,
    "session/resume": schema.ResumeSessionRequest,
    "session/list": schema.ListSessionsRequest,
    "session/set_mode": schema.SetSessionModeRequest,
    "session/set_config_option": schema.SetSessionConfigOptionSelectRequest,
    "session/prompt": schema.PromptRequest,
    "session/cancel": schema.CancelNotification,
}
ANSWERS: Final[Mapping[str, type[BaseModel]]] = {
    "initialize": schema.InitializeResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/resume": schema.ResumeSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
    "session/prompt": schema.PromptResponse,
}
THEIRS: Final[Mapping[str, type[BaseModel]]] = {
    "session/update": schema.SessionNotification,
    "session/request_permission": schema.RequestPermissionRequest,
}


class Overheard(AcpAgent):
    """Keeps what goes both ways."""

    def __init__(self, setup: AcpSetup) -> None:
        super().__init__(setup)
        self.sent: list[dict[str, Any]] = []
        self.heard: list[dict[str, Any]] = []

    def _send(self, line: bytes) -> None:
        self.sent.append(json.loads(line))
        super()._send(line)

    def data(self, data: bytes) -> None:
        self.heard += [json.loads(line) for line in data.splitlines()]
        super().data(data)


async def test_both_halves_speak_acp_by_its_schema(stand_in: StandIn, tmp_path: Path) -> None:
    children = AgentChildGroup()
    command = Command((str(stand_in.program), "acp"), str(tmp_path), dict(os.environ))
    agent = Overheard(AcpSetup(command, "plan", "auto", False, "test", True, 20, 2**20))
    try:
        await agent.start(children)
        session = await agent.new_session(str(tmp_path))
        script = 'sim: think hm\nsim: say hi\nsim: exec read {"path":"a"}'
        await agent.prompt(session, Prompt(script, (Image(b"png", "image/png"),)), lambda _: None)
        wish = ModelWish("sim-composer-high")
        await agent.load_session(session, str(tmp_path), wish=wish)
        assert agent.can_resume
        agent.can_resume = False  # as builds before June 2026
        await agent.load_session(session, str(tmp_path), wish=wish)
        other = Overheard(AcpSetup(command, "agent", "auto", False, "test", True, 20, 2**20))
        await other.start(children)
        free = await other.new_session(str(tmp_path))
        await other.prompt(free, Prompt('sim: exec shell {"command":"ls"}'), lambda _: None)
        hanging = agent.prompt(session, Prompt("sim: mute"), lambda _: None)
        agent.cancel(session)
        assert (await asyncio.wait_for(hanging, 20))["stopReason"] == "cancelled"
    finally:
        await children.aclose()
    judged = 0
    for one in (agent, other):
        methods = {message["id"]: message["method"] for message in one.sent if "method" in message and "id" in message}
        asked = {message["id"]: message["method"] for message in one.heard if "method" in message and "id" in message}
        for message in one.sent:
            if "method" in message:
                OURS[message["method"]].model_validate(message["params"])
                judged += 1
            elif asked[message["id"]] == "session/request_permission":
                schema.RequestPermissionResponse.model_validate(message["result"])
                judged += 1
        for message in one.heard:
            kind = THEIRS.get(message["method"]) if "method" in message else ANSWERS.get(methods[message["id"]])
            if kind is not None:
                kind.model_validate(message["params"] if "method" in message else message["result"])
                judged += 1
    assert judged > 25
