"""Starts a simulator and a gateway, runs each client of tests/clients/rig in each of its modes, prints one table."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RIG = ROOT / "tests" / "clients" / "rig"
QUICK = ("openai-python", "anthropic-python", "langchain", "opencode")
# opencode also stands witness in tests/clients/test_acp_agents.py, which is left out where it is not installed
SLOW = ("compact",)
"""Left out by --quick: six starts of a client, one after the other."""
TESTED = ROOT / "tests" / "clients" / "tested.md"
DOCS = ROOT / "docs" / "clients" / "README.md"
TESTED_HEAD = """# Newest releases

`./scripts/clients --newest` writes this file. On {date} it installed the newest release of each client and ran it
against `caretway serve` on the simulator, with a model name that its users type and with an MCP server in its
configuration. A workflow does the same every week.

* text: a plain answer. tool: the model calls a tool of the client, and the result goes back into the same turn.
* builtin: the model uses Cursor's own shell, which becomes the client's tool. MCP: it calls the tool of the MCP server.
* runs: what Cursor would have counted for the row. The SDKs make many checks in each column.

| client | version | model | text | tool | builtin | MCP | runs |
|---|---|---|---|---|---|---|---|
"""
sys.path.insert(0, str(RIG))


def main(words: list[str]) -> int:
    from clients import CLIENTS  # type: ignore[import-not-found]  # a plain script, found through sys.path

    words, serve_flags = split(words)
    known = [client.name for client in CLIENTS]
    parser = argparse.ArgumentParser(
        "scripts/clients", description=__doc__, epilog="What follows -- goes to caretway serve."
    )
    parser.add_argument("--quick", action="store_true", help="only those that install in a minute")
    parser.add_argument("--cluster", action="store_true", help="three gateways on one Redis, behind haproxy")
    parser.add_argument("--table", action="store_true", help="only write the tables of docs/clients/README.md")
    parser.add_argument("--newest", action="store_true", help="the newest releases, with models that users type")
    parser.add_argument("--to", type=Path, help="the file for the table of --newest, if not tests/clients/tested.md")
    parser.add_argument("--mode", default="", help="only this mode of each client, where it has it")
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"only these, of: {', '.join(known)}")
    given = parser.parse_args(words)
    if given.table:
        DOCS.write_text(with_tables(DOCS.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    wanted = QUICK if given.quick else given.names
    chosen = [client for client in CLIENTS if not wanted or client.name in wanted]
    if unknown := set(wanted) - set(known):
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    failed = total = 0
    with tempfile.TemporaryDirectory() as data, ExitStack() as stack:
        simulator = stack.enter_context(started("simulate", "--port", "0"))
        where = ("--agent-url", simulator, "--data-dir", data)
        flags = ("--backend", "agent", "--port", "0", "--log-level", "warning", *where, *serve_flags)
        gateway = stack.enter_context(cluster(flags, data) if given.cluster else started("serve", *flags))
        if given.newest:
            return newest(chosen, gateway, simulator, given.to or (None if wanted else TESTED))
        spent = stack.enter_context(spent_key(simulator, serve_flags))
        print(f"{'client':18} {'mode':8} {'verdict':8} {'seconds':>7} {'Cursor runs':>11}", flush=True)
        for client in chosen:
            for mode in [one for one in client.modes if given.mode in ("", one) and not (given.quick and one in SLOW)]:
                began = time.monotonic()
                address, key = spent if mode == "budget" else (gateway, "sk-test")
                passed, count, output = tried(client, address, mode, simulator, CARETWAY_KEY=key)
                took = time.monotonic() - began
                failed += not passed
                total += 1
                verdict = "ok" if passed else "FAILED"
                print(f"{client.name:18} {mode:8} {verdict:8} {took:7.1f} {count:11}", flush=True)
                if mode in ("budget", "compact", "names") and passed:
                    print(f"{'':18} {output.strip().partition(') ')[2]}", flush=True)
                if not passed:
                    print(output, flush=True)
    print(f"\n{total - failed} passed, {failed} failed")
    return 1 if failed else 0


def with_tables(page: str) -> str:
    """The page with its tables made anew: the clients of `caretway launch` and the libraries, at the versions pinned in
    the rig."""
    from rig import version

    from caretway.cli.clients.table import ALSO, BY_NAME
    from caretway.cli.clients.values import OfferedModel, Surroundings, Target
    from clients import CLIENTS

    runs = {ALSO.get(one.name, one.name): f"{version(one)}: {', '.join(one.modes)}" for one in CLIENTS}
    target = Target("http://127.0.0.1:32124", "local", (OfferedModel("default", "Auto"),), "default")
    home = Surroundings(Path("~"), {}, lambda _path: False)
    programs = "| client | install | start | `setup` writes | API | run |\n|---|---|---|---|---|---|\n"
    for one in BY_NAME.values():
        files = ", ".join(f"`{plan.path}`" for plan in one.setup(target, home)) if one.setup else "-"
        programs += (
            f"| {one.title} | `{one.install}` | `{one.starts_with}` | {files} | {one.api} | {runs[one.name]} |\n"
        )
    libraries = "| library | run |\n|---|---|\n"
    for one in CLIENTS:
        if not (one.name in BY_NAME or one.name in ALSO or one.install_as or one.name.partition("-")[0] in BY_NAME):
            libraries += f"| {one.title or one.name} | {runs[one.name]} |\n"
    head, start, rest = page.partition("writes the tables. -->\n")
    _, end, tail = rest.partition("<!-- /tables -->")
    return f"{head}{start}\n{programs}\n{libraries}\n{end}{tail}"


def tried(client: Any, address: str, mode: str, simulator: str, **environment: str) -> tuple[bool, int, str]:
    """One mode of one client: (whether it passed, Cursor runs, the end of its output)"""
    before = runs(simulator)
    done = subprocess.run(
        [sys.executable, str(RIG / "run"), client.name, address, mode],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    count, output = runs(simulator) - before, done.stdout[-3000:] + done.stderr[-3000:]
    most = client.runs.get(mode, count)
    if count > most:
        output += f"\n{count} runs were opened where {most} are enough"
    return done.returncode == 0 and count <= most, count, output


def newest(clients: list[Any], gateway: str, simulator: str, target: Path | None) -> int:
    """The newest release of each client, with each of its models, in four modes; `target` gets the table. Where it
    cannot be installed, the pinned one is run instead, which is a failure in CI only."""
    from rig import NEWEST_MODES, version  # type: ignore[import-not-found]

    table, notes, failures = "", "", ""
    lacks: dict[str, list[str]] = {}
    for client in [one for one in clients if one.models]:
        release, place, why = installed(client)
        if why:
            notes += f"* {client.title}: {why} {f'Run here: {version(release)}' if place else 'Not run here'}.\n"
            failures += f"\n{client.name}: {why}\n" if os.environ.get("CI") else ""
        for mode, why in client.lacks.items():
            lacks.setdefault(f"no {mode}: {why}", []).append(client.title)
        for model in client.models:
            before, verdicts = runs(simulator), []
            about = {"CARETWAY_CLIENT_PLACE": str(place), "CARETWAY_MODEL": model, "CARETWAY_CLIENT_MCP": "1"}
            for mode in NEWEST_MODES:
                if place is None or mode not in client.modes:
                    verdicts.append("-")
                    continue
                passed, _, output = tried(client, gateway, mode, simulator, **about)
                verdicts.append("ok" if passed else "FAILED")
                failures += "" if passed else f"\n{client.name} {version(release)} {mode} with {model}:\n{output}\n"
            cells = (client.title, version(release), f"`{model}`", *verdicts, str(runs(simulator) - before))
            row = f"| {' | '.join(cells)} |"
            table += row + "\n"
            print(f"\x1b[31m{row}\x1b[0m" if "FAILED" in row and sys.stdout.isatty() else row, flush=True)
    notes += "".join(f"* {', '.join(pages)}: {why}.\n" for why, pages in lacks.items())
    if target is not None:
        target.write_text(TESTED_HEAD.format(date=time.strftime("%Y-%m-%d")) + table + "\n" + notes)
    print(f"\n{notes}{failures}", flush=True)
    return 1 if failures else 0


def installed(client: Any) -> tuple[Any, Path | None, str]:
    """(the newest release, else the pinned one; where it is installed, if it is; why not the newest)"""
    from rig import install_client
    from rig import newest as newest_release

    why = ""
    for chosen in (newest_release, lambda pinned: pinned):
        try:
            release = chosen(client)
            return release, install_client(release), why
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            why = why or reason(error)
    return client, None, why


def reason(error: Exception) -> str:
    """The installer's own sentence, from the end of its output."""
    lines = str(error).splitlines()
    found = [line for line in lines if re.match(r"(?:npm error (?!code)|ERROR:)", line)] or lines[:1] or [repr(error)]
    return re.sub(r"^(?:npm error (?:\w+ (?=[A-Z]))?|ERROR: )", "", found[0])


@contextmanager
def cluster(flags: tuple[str, ...], data: str) -> Iterator[str]:
    """Three gateways that act as one, and the balancer in front of them."""
    sys.path.insert(0, str(ROOT / "tests"))
    from balancer import balancer
    from redis_server import redis_server

    with ExitStack() as stack:
        redis = stack.enter_context(redis_server())
        os.environ["CARETWAY_CLUSTER_KEY"] = "cw-clients-0123456789abcdef"
        gateways = []
        for number in range(3):
            own = Path(data, str(number))
            own.mkdir(mode=0o700)
            shared = ("--cluster", redis.url, "--cluster-drain", "0s", "--data-dir", str(own))
            gateways.append(stack.enter_context(started("serve", *flags, *shared)))
        ports = [int(gateway.rpartition(":")[2]) for gateway in gateways]
        yield f"http://127.0.0.1:{stack.enter_context(balancer(ports))}"


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """(our words, what is for `caretway serve`)"""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


@contextmanager
def spent_key(simulator: str, serve_flags: list[str]) -> Iterator[tuple[str, str]]:
    """A gateway of its own, and a key of it whose budget is used up."""
    program = Path(sys.executable).parent / "caretway"
    with tempfile.TemporaryDirectory() as data:
        new = [program, "key", "new", "--name", "rig", "--budget", "runs=1/day", "--data-dir", data]
        key = subprocess.run(new, capture_output=True, text=True, check=True).stdout.strip()
        where = ("--agent-url", simulator, "--data-dir", data)
        with started("serve", "--backend", "agent", "--port", "0", *where, *serve_flags) as gateway:
            body = {"model": "auto", "messages": [{"role": "user", "content": "sim: say hello"}]}
            ask = urllib.request.Request(
                gateway + "/v1/chat/completions",
                json.dumps(body).encode(),
                {"authorization": f"Bearer {key}", "content-type": "application/json"},
            )
            with urllib.request.urlopen(ask, timeout=30) as answer:
                answer.read()
            yield gateway, key


@contextmanager
def started(*command: str) -> Iterator[str]:
    """A `caretway` command that listens; gives its address."""
    program = Path(sys.executable).parent / "caretway"
    environment = os.environ | {"CURSOR_API_KEY": "simulated"}
    with subprocess.Popen([program, *command], stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            address = next((m.group() for line in lines if (m := re.search(r"http://[\d.]+:\d+", line))), None)
            if address is None:
                raise SystemExit(f"caretway {command[0]} did not start")
            yield address
        finally:
            process.terminate()


def runs(simulator: str) -> int:
    with urllib.request.urlopen(simulator + "/_sim/stats", timeout=10) as answer:
        return int(json.load(answer)["runs_opened"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
