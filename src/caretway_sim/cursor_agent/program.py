"""The cursor-agent stand-in's command line: flags, sub-commands (login, logout, status, models, create-chat, acp),
help, version, a journal for tests.

`python -m caretway_sim.cursor_agent` runs it as a separate program, so it reads its own environment. It imports little,
because it is started for every prompt.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from .words import MODELS, SIGNED_OUT, USER, Chats, config_directory

VERSION: Final = "2026.09.02-simulated"
LOGIN_URL: Final = "https://cursor.com/loginDeepControl?challenge=simulated&uuid=simulated&mode=login"

HELP: Final = """Usage: agent [options] [command] [prompt...]

Simulated: this is Caretway's stand-in, not Cursor's program.

Options:
  -p, --print                  print the answer and exit
  --output-format <format>     text | json | stream-json
  --stream-partial-output      send text as it is made
  --model <model>              model to use
  --mode <mode>                plan | ask
  -f, --force                  allow tools
  --trust                      trust the workspace
  --workspace <path>           where to work
  --resume [chatId]            go on with a chat
  --list-models                list the models and exit

Commands:
  login                        sign in
  logout                       sign out
  status|whoami [options]      who is signed in
  models                       list the models
  create-chat                  make an empty chat and print its id
  acp                          speak the Agent Client Protocol
"""

_VALUED: Final = (
    "--output-format",
    "--model",
    "--mode",
    "--workspace",
    "--resume",
    "--api-key",
    "--auth-token",
    "--sandbox",
    "--format",
    "-H",
    "--header",
    "-e",
    "--endpoint",
)


def read_arguments(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Returns the flags with their values, and the remaining words. A flag without a value has an empty one."""
    flags: dict[str, str] = {}
    words: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        name, equals, value = word.partition("=")
        if not equals and name in _VALUED and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        flags[{"-p": "--print", "-f": "--force", "--yolo": "--force", "--plan": "--mode"}.get(name, name)] = (
            "plan" if name == "--plan" else value
        )
    return flags, words


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    flags, words = read_arguments(argv)
    chats = Chats(config_directory(environ))
    signed_in = chats.signed_in or bool(environ.get("CURSOR_API_KEY") or flags.get("--api-key"))
    _keep_record(argv, environ)
    if "--help" in flags or "-h" in flags:
        shown = HELP if environ.get("SIM_AGENT_ACP") != "no" else HELP.replace("  acp ", "  old ")
        return _say(shown)
    if "--version" in flags or "-v" in flags:
        return _say(VERSION + "\n")
    command = words[0] if words else ""
    if "--list-models" in flags or command == "models":
        return _models(signed_in)
    if command in ("status", "whoami"):
        return _status(flags, chats, environ)
    if command == "login":
        return _login(chats)
    if command == "logout":
        chats.sign_out()
        return _say("Logged out\n")
    if command == "create-chat":
        chat = chats.new()
        chats.save(chat)
        return _say(chat.id + "\n")
    if command == "acp" and environ.get("SIM_AGENT_ACP") == "broken":
        sys.stderr.write("Error: no ACP today\n")
        return 1
    if command == "acp":
        from .acp import AcpServer

        deaf = environ.get("SIM_AGENT_DEAF") == "yes"
        if deaf:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = AcpServer(
            chats,
            signed_in=signed_in,
            model=flags.get("--model") or "auto",
            force="--force" in flags,
            home=environ.get("HOME") or os.path.expanduser("~"),
            mcp=environ.get("SIM_AGENT_MCP") or "used",
            prompted=lambda: _keep_record(["session/prompt"], environ, ".prompts"),
        ).serve()
        while deaf:
            signal.pause()
        return code
    return _print(flags, words, chats, signed_in)


def _print(flags: Mapping[str, str], words: Sequence[str], chats: Chats, signed_in: bool) -> int:
    from . import print_mode as printing

    resume = flags.get("--resume")
    if resume == "":
        sys.stderr.write("a bare --resume opens a list of chats, which needs a terminal\n")
        return 1
    options = printing.Options(
        format=flags.get("--output-format") or "text",
        partial="--stream-partial-output" in flags,
        model=flags.get("--model") or "auto",
        mode=flags.get("--mode") or "agent",
        force="--force" in flags,
        trust="--trust" in flags,
        workspace=flags.get("--workspace") or os.getcwd(),
        resume=resume,
    )
    prompt = " ".join(words) if words else sys.stdin.buffer.read().decode("utf-8", "replace")
    return printing.run(options, prompt, chats, signed_in=signed_in)


def _say(text: str) -> int:
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _models(signed_in: bool) -> int:
    if not signed_in:
        sys.stderr.write(SIGNED_OUT + "\n")
        return 1
    marks = {"auto": "  (current)", "sim-auto": "  (default)"}
    rows = [f"{model} - {name}{marks.get(model, '')}" for model, name in MODELS.items()]
    return _say("\n".join(["\x1b[1mAvailable models\x1b[0m", "", *rows, "", "Tip: use --model <id> to switch.", ""]))


def _status(flags: Mapping[str, str], chats: Chats, environ: Mapping[str, str]) -> int:
    time.sleep(float(environ.get("SIM_AGENT_STATUS_S") or 0))
    signed_in = chats.signed_in
    if flags.get("--format") == "json" and environ.get("SIM_AGENT_STATUS") != "text":
        status = "authenticated" if signed_in else "unauthenticated"
        email = {"email": USER} if signed_in else {}
        return _say(json.dumps({"status": status, "isAuthenticated": signed_in, **email}) + "\n")
    if flags.get("--format") == "json":
        sys.stderr.write("error: unknown option '--format'\n")
        return 1
    return _say(f"\n \x1b[32m✓ Logged in as {USER}\x1b[0m\n" if signed_in else "\n \x1b[31mNot logged in\x1b[0m\n")


def _login(chats: Chats) -> int:
    _say(f"Open this link to sign in:\n\x1b[4m{LOGIN_URL}\x1b[0m\nWaiting for the browser...\n")
    chats.sign_in()
    return _say("\x1b[32m✓\x1b[0m Login successful\n")


def _keep_record(argv: Sequence[str], environ: Mapping[str, str], suffix: str = "") -> None:
    """Append how the program was started to the tests' journal, one line each; prompts in ACP mode go to a second
    file."""
    if journal := environ.get("SIM_AGENT_JOURNAL"):
        with open(journal + suffix, "a", encoding="utf-8") as file:
            file.write(json.dumps({"pid": os.getpid(), "argv": list(argv), "cwd": os.getcwd()}) + "\n")


def main() -> int:
    try:
        return run(sys.argv[1:], os.environ)  # noqa: TID251 - a program of its own, this is its front door
    except BrokenPipeError:  # the parent is gone
        os._exit(1)
