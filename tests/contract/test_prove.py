"""`caretway prove` as a real process, on real sockets: what it says of the profile `live`, and of one that differs.

Every switch goes around: a simulator with it flipped, the fact that differs and what helps, a receipt, a simulator like
that receipt, and the same table once more.
"""

import asyncio
import json
import os
import re
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from caretway.prove.cases import CASES
from caretway.prove.likeness import differences, like
from caretway.prove.receipt import read_facts
from caretway_sim import Simulator
from caretway_sim.manners import LIVE, Manners
from caretway_sim.proxy import SimProxy
from contract.cursor_cli.stand_in import StandIn
from contract.gateways import simulated
from contract.subjects import WAYS

KEY: Final = "crsr_secret_of_the_account"
RAN_LONG: Final = 120.0
NEEDS_SDK: Final = pytest.mark.skipif(bool(WAYS["sdk"].missing), reason=WAYS["sdk"].missing or "never")


@dataclass(frozen=True, slots=True)
class Proof:
    code: int
    output: str
    errors: str
    receipt: dict[str, Any]
    raw: str

    @property
    def table(self) -> list[tuple[str, str, str, str]]:
        return [
            (case["case"], case["state"], case["says"], case.get("helps", "")) for case in self.receipt.get("cases", ())
        ]

    def row(self, name: str) -> tuple[str, str, str]:
        return next(row[1:] for row in self.table if row[0] == name)

    def differing(self) -> set[str]:
        return {row[0] for row in self.table if row[1] == "differs"}


async def caretway(home: Path, *arguments: str, key: str = KEY, **more: str) -> tuple[int, str, str]:
    """The command without a terminal, in an environment of its own."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)} | ({"CURSOR_API_KEY": key} if key else {}) | more
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "caretway",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        cwd=home,
    )
    async with asyncio.timeout(RAN_LONG):
        output, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


async def prove(home: Path, *arguments: str, **environment: str) -> Proof:
    file = home / "receipt.json"
    file.unlink(missing_ok=True)
    code, output, errors = await caretway(home, "prove", "--yes", "--receipt", str(file), *arguments, **environment)
    raw = file.read_text() if file.exists() else "{}"
    return Proof(code, output, errors, json.loads(raw), raw)


async def prove_at(manners: Manners, home: Path, *arguments: str, backend: str = "agent") -> Proof:
    async with simulated(manners) as (_, port):
        return await prove(home, "--backend", backend, "--agent-url", f"http://127.0.0.1:{port}", *arguments)


def is_clean(proof: Proof, *more: str) -> None:
    """No secret, no prompt and no address in the receipt."""
    for secret in (KEY, "crsr_", "Bearer", "eyJ", "127.0.0.1", "Reply with", *more):
        assert secret not in proof.raw
    assert not re.search(r"\bm[0-9a-f]{12}\b", proof.raw), "a marker"
    assert not re.search(r"[\w.]+@[\w.]+", proof.raw), "an address"
    assert not re.search(r"[0-9a-f]{16}", proof.raw), "an id"


def only(*names: str) -> list[str]:
    return [word for name in names for word in ("--only", name)]


# ---------------------------------------------------------------------------------------------- the profile `live`


async def test_everything_holds_on_the_agent_backend(tmp_path: Path) -> None:
    proof = await prove_at(LIVE, tmp_path)
    assert (proof.code, proof.errors) == (0, "")
    states = {case.name: "holds" if "agent" in case.backends else "not tried" for case in CASES} | {
        "proxy": "not tried"
    }
    assert {row[0]: row[1] for row in proof.table} == states
    assert all(len(line) <= 80 for line in proof.output.splitlines() if not line.startswith("receipt: "))
    assert "\x1b" not in proof.output
    assert "35 hold, 0 differ, 2 not tried" in proof.output
    assert proof.receipt["facts"]["kill"] == "right"
    is_clean(proof, str(tmp_path))
    assert like(read_facts(proof.raw.encode())).refused_shapes == frozenset()


@NEEDS_SDK
@pytest.mark.all
async def test_nothing_differs_on_the_sdk_backend(tmp_path: Path) -> None:
    proof = await prove_at(LIVE, tmp_path, backend="sdk")
    assert proof.code == 0, proof.output + proof.errors
    states = {row[0]: row[1] for row in proof.table}
    assert {name for name, state in states.items() if state == "holds"} == {
        case.name for case in CASES if "sdk" in case.backends
    }
    assert "differs" not in states.values()
    is_clean(proof, str(tmp_path))


async def test_nothing_differs_on_the_cli_backend(tmp_path: Path) -> None:
    stand_in = StandIn(tmp_path)
    stand_in.install()
    second = ("--second-model", "sim-think")
    proof = await prove(tmp_path, "--backend", "cli", "--agent-bin", str(stand_in.program), *second)
    assert proof.code == 0, proof.output + proof.errors
    held = {row[0] for row in proof.table if row[1] == "holds"}
    assert os.stat(tmp_path / ".local" / "share" / "caretway").st_mode & 0o077 == 0
    assert held >= {
        "text",
        "call",
        "native tools",
        "parallel calls",
        "ten steps",
        "instructions",
        "continuation",
        "replay",
        "kill -9",
    }
    assert proof.differing() == set()
    is_clean(proof, str(tmp_path))


async def test_tools_that_travel_as_text_on_the_cli_backend_are_told(tmp_path: Path) -> None:
    stand_in = StandIn(tmp_path)
    stand_in.install(SIM_AGENT_MCP="ignored")
    where = ("--backend", "cli", "--agent-bin", str(stand_in.program))
    proof = await prove(tmp_path, *where, *only("text", "call", "native tools"))
    assert proof.row("call")[0] == "holds"
    assert proof.row("native tools")[:2] == ("differs", "tools travel as text; `caretway serve` logs why")


@pytest.mark.parametrize("kind", ["http", "socks5h"])
async def test_runs_through_a_proxy_are_told(kind: str, tmp_path: Path) -> None:
    """The stand-in has a name that only the proxy knows, and cuts whoever comes another way."""
    proxy = SimProxy("ada", "secret-of-the-proxy")
    simulator = Simulator(manners=replace(LIVE, refuses_direct=True), home=proxy.comes_from_here)
    try:
        port, through = await simulator.listen("127.0.0.1", 0), await proxy.listen("127.0.0.1", 0)
        where = ("--backend", "agent", "--agent-url", f"http://cursor.test:{port}")
        way = {"CARETWAY_PROXY": f"{kind}://ada:secret-of-the-proxy@127.0.0.1:{through}"}
        proof = await prove(tmp_path, *where, *only("text", "proxy", "run over HTTP/1.1", "kill -9"), **way)
    finally:
        await simulator.aclose()
        await proxy.aclose()
    assert proof.code == 0, proof.output + proof.errors
    assert proof.row("proxy")[:2] == ("holds", f"runs are answered through the {kind} proxy")
    assert "secret-of-the-proxy" not in proof.raw + proof.output
    assert str(through) not in proof.raw


# ---------------------------------------------------------------------------------------------- one switch flipped

FLIPPED: Final[dict[str, tuple[dict[str, Any], str, str, str]]] = {
    "versions": (
        {"known_versions_only": True},
        "client version",
        "the version that the gateway names is refused; another is served",
        "--agent-client-version",
    ),
    "shape": ({"refused_shapes": frozenset({"base"})}, "shape base", "is refused", "--agent-quirks model=details"),
    "fourth shape": ({"judges_model_shape": False}, "shape requested", "is served", "Nothing to set"),
    "count": ({"lists_calls": True}, "count of calls", "announces how many", "Nothing to set"),
    "silent gaps": ({"tokens_in_gaps": False}, "gaps", "silence between", "--agent-quirks sibling_quiet=1000ms"),
    "in turn": (
        {"asks_in_turn": True},
        "calls in turn",
        "after the result of the one before",
        "--agent-quirks sibling_cap",
    ),
    "no checkpoint": (
        {"checkpoint_after_call_ms": None},
        "checkpoint at a call",
        "no checkpoint before a call's result",
        "Nothing to set",
    ),
    "pieces": ({"argument_text": "pieces"}, "arguments", "arguments come in pieces", "Nothing to set"),
    "two ids": ({"two_ids": True}, "one id for a call", "different ids", "Nothing to set"),
    "resumed": (
        {"resume_needs_checkpoint": False},
        "resumed replay",
        "goes on after a replay",
        "--agent-quirks replay",
    ),
    "variants": ({"whole_variants": False}, "whole variants", "is served without one", "Nothing to set"),
    "quota": ({"period_usage": "refused"}, "quota", "is refused", "see the dashboard"),
    "preamble": ({"empty_tools_drop_preamble": False}, "preamble", "thousands of tokens", "Nothing to set"),
    "schemas": ({"strict_families": frozenset({"composer"})}, "schema", "unions", "simpler ones from then on"),
    "late checkpoint": ({"early_checkpoint": False}, "early checkpoint", "no checkpoint before", "Nothing to set"),
    "outdated": (
        {"known_versions_only": True, "version_refusal": "outdated"},
        "client version",
        "another is served",
        "--agent-client-version",
    ),
    "lists": ({"cursor_catalogue": False}, "model lists", "no list of base models", "caretway models"),
    "464": ({"run_on_http1_is_464": False}, "run over HTTP/1.1", "answered 404, not 464", "Nothing to set"),
    "cache": ({"absurd_cache_reads": True}, "usage", "read from the cache", "left out"),
}
"""(the switch, the case that tells it, its words, what helps)."""


async def go_around(switch: dict[str, Any], home: Path, *arguments: str) -> tuple[Proof, Proof, Manners]:
    first = await prove_at(replace(LIVE, **switch), home, *arguments)
    manners = like(read_facts(first.raw.encode()))
    return first, await prove_at(manners, home, *arguments), manners


QUICK: Final = ("versions", "shape", "pieces")
"""Every one of the others, too, with `--all`."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.all) for name in FLIPPED]
)
async def test_a_flipped_switch_is_named_and_goes_around(name: str, tmp_path: Path) -> None:
    """The case that tells it, alone."""
    switch, case, says, helps = FLIPPED[name]
    more = only(case, "text", *(["shape details"] if case == "shape base" else []))
    first, second, manners = await go_around(switch, tmp_path, *more, "--other-version", "sdk-python-1.1.0")
    state, said, helped = first.row(case)
    assert state == "differs", first.output
    assert says in said
    assert helps in helped
    assert first.code == 1
    assert first.differing() <= {case, "text"}
    assert set(switch) <= set(differences(manners))
    assert second.table == first.table


@pytest.mark.all
@pytest.mark.parametrize("name", FLIPPED)
async def test_the_whole_table_goes_around(name: str, tmp_path: Path) -> None:
    first, second, _ = await go_around(FLIPPED[name][0], tmp_path, "--other-version", "sdk-python-1.1.0")
    assert FLIPPED[name][1] in first.differing()
    assert second.table == first.table


async def test_a_receipt_is_played_back_by_the_command(tmp_path: Path) -> None:
    first = await prove_at(replace(LIVE, argument_text="pieces"), tmp_path, *only("arguments"))
    (tmp_path / "mine.json").write_text(first.raw)
    words = [sys.executable, "-m", "caretway", "simulate", "--port", "0", "--like", str(tmp_path / "mine.json")]
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", (await process.stdout.readline()).decode())
        assert found is not None
        second = await prove(tmp_path, "--backend", "agent", "--agent-url", found[0], *only("arguments"))
    finally:
        process.terminate()
        _, told = await process.communicate()
    assert second.table == first.table
    assert b"not as in the profile live: argument_text\n" in told


async def test_the_copy_in_the_data_directory_replaces_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "receipt.json").symlink_to(tmp_path / "precious")
    proof = await prove_at(LIVE, tmp_path, *only("text"), "--data-dir", str(tmp_path / "data"))
    assert proof.code == 0, proof.errors
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "data" / "receipt.json").read_text() == proof.raw


# ---------------------------------------------------------------------------------------------- before anything is sent


@pytest.mark.parametrize("backend", ["auto", "agent", "sdk"])
@pytest.mark.parametrize("command", ["prove", "doctor --live"])
async def test_without_an_account_one_sentence_says_what_is_missing(command: str, backend: str, tmp_path: Path) -> None:
    code, output, errors = await caretway(tmp_path, *command.split(), "--backend", backend, key="")
    assert code == (2 if command == "prove" else 1)
    said = errors if command == "prove" else output
    line = next(line for line in said.splitlines() if "there is no Cursor account to prove this with" in line)
    assert "caretway login" in line + said.split(line)[1]
    assert "CURSOR_API_KEY" in said
    if command == "prove":
        assert (output, errors.count("\n")) == ("", 1)


async def test_without_a_terminal_it_does_not_spend(tmp_path: Path) -> None:
    async with simulated(LIVE) as (simulator, port):
        url = f"http://127.0.0.1:{port}"
        code, output, errors = await caretway(tmp_path, "prove", "--backend", "agent", "--agent-url", url)
        assert simulator.stats.runs_opened == 0
    assert code == 2
    assert re.search(r"cost +up to \d+ short runs", output)
    assert re.search(r"model +composer-2.5\[fast=false\]", output)
    assert errors.endswith("type: caretway prove --yes\n")
    assert [name for name in os.listdir(tmp_path) if name.endswith(".json")] == []


@pytest.mark.parametrize("said", ["n", "y"])
async def test_on_a_terminal_it_asks_and_shows_what_it_does(said: str, tmp_path: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    async with simulated(LIVE) as (simulator, port):
        words = ("prove", "--backend", "agent", "--agent-url", f"http://127.0.0.1:{port}", *only("text", "quota"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "caretway", *words),
            stdin=theirs,
            stdout=theirs,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CURSOR_API_KEY": KEY, "TERM": "xterm"},
            cwd=tmp_path,
        )
        os.write(ours, f"{said}\n".encode())
        async with asyncio.timeout(RAN_LONG):
            _, errors = await process.communicate()
        shown = os.read(ours, 65_536).decode()
        os.close(ours)
        os.close(theirs)
        assert simulator.stats.runs_opened == (said == "y")
    assert "Go on? [y/N]" in shown
    receipts = [name for name in os.listdir(tmp_path) if name.startswith("caretway-receipt-")]
    if said == "n":
        assert (process.returncode, errors, receipts) == (2, b"caretway: nothing was sent\n", [])
        return
    assert (process.returncode, len(receipts)) == (0, 1), errors
    assert "1/2 quota ..." in shown
    assert "\x1b[32mholds" in shown
    assert os.stat(tmp_path / receipts[0]).st_mode & 0o077 == 0


async def test_ctrl_c_at_the_question_is_a_no(tmp_path: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    async with simulated(LIVE) as (simulator, port):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "caretway", "prove", "--backend", "agent"),
            *("--agent-url", f"http://127.0.0.1:{port}"),
            stdin=theirs,
            stdout=theirs,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CURSOR_API_KEY": KEY},
            cwd=tmp_path,
        )
        try:
            shown = ""
            async with asyncio.timeout(RAN_LONG):
                while "Go on?" not in shown:
                    shown += (await asyncio.to_thread(os.read, ours, 65_536)).decode()
                process.send_signal(signal.SIGINT)
                _, errors = await process.communicate()
        finally:
            os.close(ours)
            os.close(theirs)  # whoever still asks hears the end of its input
        assert simulator.stats.runs_opened == 0
    assert process.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in errors


async def test_a_case_that_does_not_exist_is_named(tmp_path: Path) -> None:
    code, _, errors = await caretway(tmp_path, "prove", "--only", "parallel")
    assert (code, errors) == (2, "caretway: there is no case 'parallel'; try: --only \"parallel calls\"\n")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--model", "no-such-model"), "your account lists no model 'no-such-model'; see: caretway models"),
        (("--second-model", "no-such"), "your account lists no model 'no-such'; see: caretway models"),
        (("--receipt", "nowhere/mine.json"), "cannot write nowhere/mine.json: No such file or directory; name another"),
        (("--receipt", "."), "cannot write .: Is a directory; name another file: --receipt FILE"),
    ],
)
async def test_what_cannot_succeed_costs_nothing(flags: tuple[str, str], says: str, tmp_path: Path) -> None:
    async with simulated(LIVE) as (simulator, port):
        address = ("--agent-url", f"http://127.0.0.1:{port}")
        code, _, errors = await caretway(tmp_path, "prove", "--yes", "--backend", "agent", *address, *flags)
        assert simulator.stats.runs_opened == 0
    assert (code, errors.startswith(f"caretway: {says}")) == (2, True), errors


async def test_a_stand_in_by_any_setting_is_told(tmp_path: Path) -> None:
    async with simulated(LIVE) as (_, port):
        proof = await prove(tmp_path, "--backend", "agent", "--api-url", f"http://127.0.0.1:{port}", *only("quota"))
    assert proof.receipt["about"]["service"] == "another address"


async def test_a_service_that_refuses_everything_is_asked_once(tmp_path: Path) -> None:
    proof = await prove_at(replace(LIVE, known_versions_only=True), tmp_path)
    assert proof.row("client version")[0] == "differs"
    assert "--other-version sdk-python-1.1.0" in proof.row("client version")[2]
    assert proof.row("ten steps")[:2] == ("not tried", "no run is answered, so nothing more was asked")


async def test_doctor_leads_to_prove_when_no_run_is_answered(tmp_path: Path) -> None:
    async with simulated(replace(LIVE, known_versions_only=True)) as (_, port):
        address = ("--agent-url", f"http://127.0.0.1:{port}")
        code, output, _ = await caretway(tmp_path, "doctor", "--live", "--backend", "agent", *address)
    assert code == 1
    assert re.search(r"FAIL  live: text +it is refused .resource_exhausted.\n +Find out why: caretway prove\n", output)


async def test_doctor_runs_the_cheapest_three(tmp_path: Path) -> None:
    async with simulated(LIVE) as (simulator, port):
        where = ("--backend", "agent", "--agent-url", f"http://127.0.0.1:{port}", "--port", "0")
        code, output, _ = await caretway(tmp_path, "doctor", "--live", *where)
        assert simulator.stats.runs_opened == 1
    assert code == 0, output
    for said in ("two lists", "the period's usage is reported", "a marker comes back"):
        assert said in output


# ---------------------------------------------------------------------------------------------- what a receipt holds


@pytest.mark.parametrize(
    ("backend", "cases"), [("agent", ()), pytest.param("sdk", ("text", "call"), marks=NEEDS_SDK)], ids=["agent", "sdk"]
)
async def test_no_secret_and_no_prompt_in_a_receipt(backend: str, cases: tuple[str, ...], tmp_path: Path) -> None:
    """Nor anything that the user typed, or that names the user's machine."""
    typed = ("--model", "my-own-alias-of-a-model", "--model-aliases", "my-own-alias-of-a-model=composer-2.5")
    async with simulated(LIVE) as (_, port):
        where = ("--backend", backend, "--agent-url", f"http://127.0.0.1:{port}")
        proof = await prove(tmp_path, *where, *typed, *only(*cases))
    assert proof.receipt["facts"]
    is_clean(proof, str(port), str(tmp_path), "my-own-alias")
