"""Hooks: what they may be, what they get, and when something is told."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from caretway.core.account_usage import AccountUsage, PeriodUsage, PlanInfo, PlanUsage
from caretway.core.errors import ErrorKind, GatewayError
from caretway.core.records import RefusedRequest, TurnRecord
from caretway.usage.hooks import (
    MAX_WAITING,
    CommandHook,
    HookQueue,
    HookWatch,
    WebHook,
    command_environment,
    read_hook,
    run_command,
)


@pytest.mark.parametrize(
    ("text", "hook"),
    [
        ("notify-send 'Caretway says' now", CommandHook(("notify-send", "Caretway says", "now"))),
        ("echo $(rm -rf /); true", CommandHook(("echo", "$(rm", "-rf", "/);", "true"))),
        ("https://hooks.example/a/b?c=d", WebHook("https://hooks.example", "/a/b?c=d")),
        ("http://127.0.0.1:8080", WebHook("http://127.0.0.1:8080", "/")),
    ],
)
def test_what_a_hook_is(text: str, hook: object) -> None:
    assert read_hook(text) == hook


@pytest.mark.parametrize("text", ["", "  ", "https://", "http://user:secret@host/", "echo 'unclosed", "http://a:b"])
def test_what_is_none_is_not_repeated(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_hook(text)
    assert "secret" not in str(caught.value)


def test_a_command_gets_no_secrets() -> None:
    given = {"PATH": "/bin", "CURSOR_API_KEY": "crsr_x", "CARETWAY_API_KEY": "cw-y", "HOME": "/root"}
    assert command_environment(given, "budget_low") == {
        "PATH": "/bin",
        "HOME": "/root",
        "CARETWAY_EVENT": "budget_low",
    }


async def test_a_command_is_run_with_its_message(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f"import os,sys; open({str(out)!r},'a').write(os.environ['CARETWAY_EVENT']+' '+sys.stdin.read())"
    teller = HookQueue(run_command(CommandHook((sys.executable, "-c", script)), {}))
    teller.tell("budget_low", "It is low.")
    teller.tell("quota_back", "It is back.")
    await teller.aclose()
    first, second = out.read_text().splitlines()
    assert first.startswith("budget_low ")
    assert msgspec.json.decode(first.partition(" ")[2])["message"] == "It is low."
    assert second.startswith("quota_back ")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((sys.executable, "-c", "raise SystemExit(3)"), "ended with code 3"),
        (("/no/such/program",), "cannot be started"),
        ((sys.executable, "-c", "import time; time.sleep(60)"), "did not end within 0.5 s"),
    ],
)
async def test_a_hook_that_fails_is_one_line(
    argv: tuple[str, ...], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    teller = HookQueue(run_command(CommandHook(argv), {"PATH": "/bin"}), patience_s=0.5 if "60" in argv[-1] else 30.0)
    teller.tell("budget_low", "It is low.")
    task = teller._task
    assert task is not None
    await task
    assert caplog.text.count(said) == 1


async def test_what_waits_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    go_on = asyncio.Event()
    sent: list[str] = []

    async def slow(event: str, _: bytes) -> None:
        await go_on.wait()
        sent.append(event)

    teller = HookQueue(slow)
    for at in range(MAX_WAITING + 5):
        teller.tell(f"event {at}", "")
    go_on.set()
    await teller.aclose()
    assert len(sent) == MAX_WAITING
    assert caplog.text.count("too slow") == 5


# ---- what is told


def ended(outcome: str, error: str = "") -> TurnRecord:
    return TurnRecord("r", "d", "b", "m", "fresh", "", stream=False, outcome=outcome, error=error)


def refused(kind: ErrorKind, code: str = "") -> RefusedRequest:
    return RefusedRequest("r", "POST", "/", 401, kind.value, code, "", 0.0)


def test_changes_are_told_once() -> None:
    heard: list[str] = []
    watch = HookWatch(lambda event, _: heard.append(event))
    watch.response_ended(ended("end"))
    watch.request_refused(refused(ErrorKind.QUOTA, "insufficient_quota"))  # a budget of the gateway's own
    assert heard == []
    for _ in range(3):
        watch.request_refused(refused(ErrorKind.SIGNED_OUT))
        watch.response_ended(ended("quota", "quota"))
    assert heard == ["sign_in_lost", "quota_spent"]
    watch.response_ended(ended("hung up"))
    watch.response_ended(ended("paused"))
    watch.response_ended(ended("end"))
    assert heard == ["sign_in_lost", "quota_spent", "quota_back"]
    watch.request_refused(refused(ErrorKind.SIGNED_OUT))
    assert heard[-1] == "sign_in_lost"


def usage(percent: float) -> AccountUsage:
    return AccountUsage(PeriodUsage(plan=PlanUsage(cursor_models_percent=percent)), PlanInfo())


async def test_while_usage_is_spent_the_account_is_asked() -> None:
    heard: list[str] = []
    back = asyncio.Event()

    def tell(event: str, _: str) -> None:
        heard.append(event)
        if event == "quota_back":
            back.set()

    answers: list[Any] = [GatewayError(ErrorKind.UPSTREAM_DOWN, "no"), usage(100.0), usage(3.0)]

    async def account() -> AccountUsage:
        answer = answers.pop(0)
        if isinstance(answer, GatewayError):
            raise answer
        return answer  # type: ignore[no-any-return]

    watch = HookWatch(tell, look_s=0.0)
    watch.ask(account)
    watch.response_ended(ended("quota", "quota"))
    async with asyncio.timeout(10):
        await back.wait()
    assert heard == ["quota_spent", "quota_back"]
    assert answers == []
    watch.close()
