"""`caretway.testing`: the SDKs of others against a scripted gateway, the pytest plugin, and that nothing of the user's
is touched."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from caretway import Gateway, Settings
from caretway.testing import Script, ScriptedGateway, ScriptedSimulator
from installing import install

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testing.md"
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def gateway() -> Iterator[ScriptedGateway]:
    with ScriptedGateway() as running:
        yield running


def ask(
    gateway: ScriptedGateway, *messages: object, retries: int = 0, **more: object
) -> openai.types.chat.ChatCompletion:
    client = openai.OpenAI(base_url=gateway.openai_url, api_key=gateway.api_key, max_retries=retries)
    asked = [{"role": "user", "content": one} if isinstance(one, str) else one for one in messages]
    return client.chat.completions.create(model=gateway.model, messages=asked, **more)  # type: ignore[call-overload,no-any-return]


def test_a_tool_loop_is_one_run_and_everything_is_seen(gateway: ScriptedGateway) -> None:
    gateway.play(Script().call("weather", city="Paris").result(), Script().say("Bye."))
    system = {"role": "system", "content": "You are brief."}
    first = ask(gateway, system, "How is Paris?", tools=[WEATHER]).choices[0].message
    (call,) = first.tool_calls or []
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    second = ask(gateway, system, "How is Paris?", first.model_dump(), result, tools=[WEATHER]).choices[0].message
    assert second.content == "sunny"
    gateway.assert_runs(1)
    (seen,) = gateway.requests
    assert (seen.model, seen.prompt, seen.tools, seen.results) == ("sim-auto", "How is Paris?", ("weather",), ["sunny"])
    gateway.assert_arrived("You are brief.", "sunny")
    with pytest.raises(AssertionError, match="1 scripts were not played"):
        gateway.assert_played()
    assert ask(gateway, "Thanks").choices[0].message.content == "Bye."
    gateway.assert_played()
    with pytest.raises(AssertionError, match=r"2 runs were opened, not 1:\s+1\. How is Paris\?\s+2\. Thanks"):
        gateway.assert_runs(1)
    with pytest.raises(AssertionError, match=r"'rain' did not reach the model; this did: .*sunny"):
        gateway.assert_arrived("rain")


def test_a_replayed_loop_goes_on_with_its_script(gateway: ScriptedGateway) -> None:
    """A client that brings its whole history to a gateway that does not know it."""
    gateway.play(Script().call("weather").say("So it is."))
    first = ask(gateway, "How is Paris?", tools=[WEATHER]).choices[0].message
    (call,) = first.tool_calls or []
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    fresh = {"x-caretway-session": "fresh"}
    again = ask(gateway, "How is Paris?", first.model_dump(), result, tools=[WEATHER], extra_headers=fresh)
    assert again.choices[0].message.content == "So it is."
    assert gateway.requests[-1].all_results == ("sunny",)
    gateway.assert_runs(2)
    gateway.assert_played()


def test_a_retry_of_the_client_gets_the_next_script(gateway: ScriptedGateway) -> None:
    gateway.play(Script().fail("rate_limit"), Script().say("second time lucky"))
    assert ask(gateway, "Hello", retries=1).choices[0].message.content == "second time lucky"
    gateway.assert_played()


def test_a_broken_connection_behind_the_gateway_goes_on_with_the_same_script(gateway: ScriptedGateway) -> None:
    gateway.play(Script().say("One.").drop().say("Two."), Script().say("Three."))
    assert ask(gateway, "Count").choices[0].message.content == "One.\nTwo."
    assert ask(gateway, "Go on").choices[0].message.content == "Three."


def test_a_turn_too_many_is_noticed(gateway: ScriptedGateway) -> None:
    gateway.play(Script().say("Only this."))
    ask(gateway, "Hello")
    assert "no script is left" in (ask(gateway, "Hello").choices[0].message.content or "")
    with pytest.raises(AssertionError, match="1 turns had no script"):
        gateway.assert_played()


def test_anthropic_clients_and_own_settings() -> None:
    with ScriptedGateway(gateway_key="a-key-of-this-test") as gateway:
        gateway.play(Script().think("hm").say("Hello."))
        client = anthropic.Anthropic(base_url=gateway.base_url, api_key=gateway.api_key)
        thinking: anthropic.types.ThinkingConfigEnabledParam = {"type": "enabled", "budget_tokens": 1024}
        with client.messages.stream(
            model="sim-think", max_tokens=2048, thinking=thinking, messages=[{"role": "user", "content": "Hi"}]
        ) as stream:
            kinds = [block.type for block in stream.get_final_message().content]
        assert kinds == ["thinking", "text"]
        with pytest.raises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=gateway.base_url, api_key="wrong", max_retries=0).models.list()


def test_the_simulator_alone_plays_for_a_gateway_of_ones_own(tmp_path: Path) -> None:
    with ScriptedSimulator() as simulator:
        simulator.play(Script().say("From afar."))
        settings = Settings(port=0, agent_url=simulator.url, api_key="any", backend="agent", data_dir=tmp_path)
        with Gateway(settings) as gateway:
            client = openai.OpenAI(base_url=f"{gateway.base_url}/v1", api_key="any")
            answer = client.chat.completions.create(model="sim-auto", messages=[{"role": "user", "content": "Hi"}])
        assert answer.choices[0].message.content == "From afar."
        simulator.assert_runs(1)


# ------------------------------------------------------------------------------------------------- nothing is touched

TRAP = """
import asyncio, os, pathlib, socket, sys

from caretway import Gateway


def watch(event, arguments):
    if event == "socket.connect" and arguments[1][0] not in ("127.0.0.1", "::1"):
        os._exit(41)
    if event == "socket.getaddrinfo" and arguments[0] not in ("127.0.0.1", None):
        os._exit(42)


sys.addaudithook(watch)


async def main():
    gateway = Gateway.simulated()
    for _ in range(2):
        url = await gateway.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        body = b'{"model":"sim-auto","messages":[{"role":"user","content":"sim: say fine"}]}'
        lines = ["POST /v1/chat/completions HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
        writer.write("\\r\\n".join([*lines, "connection: close", "", ""]).encode() + body)
        assert b'"fine"' in await reader.read(), "no answer"
        writer.close()
        assert gateway.settings.data_dir.is_dir()
        left = gateway.settings.data_dir
        await gateway.stop()
        assert not left.exists()


asyncio.run(main())
"""


def test_simulated_touches_neither_home_nor_network(tmp_path: Path) -> None:
    """Whatever the environment asks for: a key, a file of settings, a collector, a proxy."""
    home = tmp_path / "home"
    (home / ".config" / "caretway").mkdir(parents=True)
    (home / ".config" / "caretway" / "config.toml").write_text("this is not TOML")
    home.chmod(0o500)
    before = sorted(home.rglob("*"))
    environ = {
        **os.environ,
        "HOME": str(home),
        "CURSOR_API_KEY": "key_real",
        "CARETWAY_PORT": "1",
        "HTTPS_PROXY": "http://203.0.113.1:3128",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://203.0.113.2:4318",
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run([sys.executable, "-c", TRAP], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(home.rglob("*")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"], "the temporary directory went with it"


def test_settings_from_environment_and_what_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CURSOR_API_KEY", "key_x")
    monkeypatch.setenv("PORT", "1234")
    monkeypatch.setenv("CARETWAY_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings = Settings.from_environment(port=0, host="::1")
    assert (settings.api_key, settings.port, settings.host) == ("key_x", 0, "::1")
    origins = [settings.origin(name) for name in ("api_key", "port", "host", "session")]
    assert origins == ["environment CURSOR_API_KEY", "code", "code", "default"]
    assert Gateway().settings.port == 1234


async def test_settings_without_an_account_are_noticed(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async with Gateway(Settings(port=0, data_dir=tmp_path, agent_bin="")):
        pass
    assert "Settings.from_environment()" in caplog.text
    caplog.clear()
    async with Gateway.simulated():
        pass
    assert caplog.text == ""


async def test_with_works_where_a_loop_runs_already() -> None:
    with Gateway.simulated() as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.base_url.rpartition(":")[2]))
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        assert b"ready" in await reader.read()
        writer.close()


def test_a_port_in_use_leaves_no_thread_behind() -> None:
    import threading

    with Gateway.simulated() as gateway:
        port = int(gateway.base_url.rpartition(":")[2])
        before = threading.active_count()
        with pytest.raises(OSError, match="in use"):
            Gateway.simulated(port=port).__enter__()
        assert threading.active_count() == before


# ------------------------------------------------------------------------------------------------------ the plugin, run

UNPLAYED = """
from caretway.testing import Script

def test_forgets(caretway_gateway):
    caretway_gateway.play(Script().say("x"))

def test_simulator(caretway_simulator):
    assert caretway_simulator.url.startswith("http://127.0.0.1:")
"""


def examples(page: Path) -> list[str]:
    return [block.split("```")[0] for block in page.read_text(encoding="utf-8").split("```python\n")[1:]]


def run_pytest(python: str, place: Path, *files: str) -> subprocess.CompletedProcess[str]:
    for number, text in enumerate(files):
        (place / f"test_{number}.py").write_text(text)
    (place / "pytest.ini").write_text("[pytest]\n")
    plugin = ["-p", "caretway.testing.pytest_plugin"]
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [python, "-m", "pytest", "-q", *plugin, str(place)], env=environ, capture_output=True, text=True, check=False
    )


def test_the_plugin_fails_a_test_that_leaves_a_script_unplayed(tmp_path: Path) -> None:
    done = run_pytest(sys.executable, tmp_path, UNPLAYED)
    assert "2 passed, 1 error" in done.stdout, done.stdout
    assert "1 scripts were not played: the agent asked the model too seldom" in done.stdout


def test_the_examples_that_need_no_framework(tmp_path: Path) -> None:
    retry, own = examples(PAGE)[1:3]
    uses = own + "\n\ndef test_it(strict_gateway):\n    assert strict_gateway.api_key == 'a-key-of-this-test'\n"
    done = run_pytest(sys.executable, tmp_path, retry, uses)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.all
@pytest.mark.timeout(900)
def test_an_agent_of_langchain_is_tested_as_the_page_says(tmp_path: Path) -> None:
    example = examples(PAGE)[0]
    place = install(
        ROOT / ".venv" / "langchain",
        pip=["langchain==1.4.7", "langchain-openai==1.7.3", "pytest==9.2.0", *runtime_packages()],
    )
    done = run_pytest(str(place / "venv/bin/python"), tmp_path, example)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    test = example[example.index("def test_") :]
    assert len(test.strip().splitlines()) <= 20


def runtime_packages() -> list[str]:
    import tomllib

    return [str(one) for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]]


@pytest.mark.parametrize("number", range(2))
def test_the_examples_of_starting_a_gateway(number: int, tmp_path: Path) -> None:
    example = examples(PAGE)[3 + number]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", example], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("http://127.0.0.1:")
