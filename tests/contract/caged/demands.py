"""All that a server can ask the SDK's built-in tools for, and whether it happened, as seen from this side."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from contract.caged.cage import Witness


class Asked(Protocol):
    async def ask(self, prompt: str) -> str:
        """Plays the prompt and gives its answer's text."""
        ...


def exec_(kind: str, arguments: dict[str, Any]) -> str:
    """What runs in the background gets a moment before its conversation ends, and it ends with it."""
    moment = "\nsim: wait 1500" if kind == "background_shell" else ""
    return f"sim: exec {kind} {json.dumps(arguments)}{moment}\nsim: result"


def shells(made: str, where: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Ways to run `touch made`, by name: kind and arguments."""
    command = f"touch {made}"
    return {
        "shell": ("shell", {"command": command}),
        "streamed shell": ("shell_stream", {"command": command}),
        "background shell": ("background_shell", {"command": command, "working_directory": where}),
        "bash": ("mini_swe_bash", {"1": command, "8": {}}),
        "write": ("write", {"path": made, "file_text": "x"}),
    }


def repository(folder: Path) -> tuple[Path, Path]:
    """A working directory that is a repository, and a folder of programs whose git tells that it ran."""
    root, programs = folder / "root", folder / "programs"
    for each in (root, programs):
        each.mkdir()
    git = [shutil.which("git") or "git", "-C", str(root), "-c", "user.name=x", "-c", "user.email=x@y"]
    subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message=x"], check=True)
    (programs / "git").write_text(f'#!/bin/sh\ntouch "{folder}/git-ran"\nexec "{git[0]}" "$@"\n')
    (programs / "git").chmod(0o700)
    return root, programs


async def everything(sdk: Asked, seen: Witness, folder: Path) -> dict[str, Callable[[], bool]]:
    """All that a server can ask for: by its name, whether it happened, as seen from here."""
    happened: dict[str, Callable[[], bool]] = {}
    where = str(folder / "root")
    for name in shells("", where):
        made = folder / name.replace(" ", "-")
        await sdk.ask(exec_(*shells(str(made), where)[name]))
        happened[name] = made.exists
    precious, deleted = folder / "precious", folder / "deleted"
    for each in (precious, deleted):
        each.write_text("the user's own words")
    for kind, arguments, shown in (
        ("read", {"path": str(precious)}, "own words"),
        ("grep", {"pattern": "own", "path": str(precious)}, "own words"),
        ("ls", {"path": str(folder)}, "precious"),
        ("diagnostics", {"path": str(precious)}, "diagnostics in"),
    ):
        happened[kind] = _shown(shown, await sdk.ask(exec_(kind, arguments)))
    await sdk.ask(exec_("delete", {"path": str(deleted)}))
    happened["delete"] = lambda: not deleted.exists()
    await sdk.ask(exec_("git_diff", {"1": where, "2": "HEAD", "3": "main"}))
    happened["git"] = (folder / "git-ran").exists
    made = folder / "stdin"
    reads = exec_("background_shell", {"command": "read line && touch $line", "working_directory": where})
    await sdk.ask("\n".join([reads, exec_("write_shell_stdin", {"chars": f"{made}\n"})]))
    happened["stdin"] = made.exists
    for host in ("127.0.0.1", "localhost"):
        words = await sdk.ask(exec_("fetch", {"url": f"http://{host}:{seen.port}/"}))
        happened[f"fetch from {host}"] = _shown("the witness", words)
    happened["fetch, as heard here"] = lambda: bool(seen.heard)
    assert await sdk.ask("sim: say still here") == "still here"
    return happened


def _shown(wanted: str, words: str) -> Callable[[], bool]:
    return lambda: wanted in words
