"""`caretway service install | uninstall | start | stop | restart | status | logs`: runs the gateway as a service of
this user with systemd or launchd, warns of shell variables that the service does not get, and lists what uninstalling
leaves. Without a service, `stop`, `restart` and `logs` apply to the gateway that `caretway serve` started.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..config import SETTINGS, Settings, home_directory, process_environment, user_config_file
from ..storage.private_file import write_file
from .flags import add_setting_flags, given, settings_from
from .process import RESTART, CommandFailed, remark, say, tell
from .running import (
    LAUNCH_LOG,
    NOT_RUNNING,
    START_ONE,
    RunningGateway,
    answers,
    is_another_process,
    noted_gateways,
    process_exists,
)
from .service_manager import (
    ELSEWHERE,
    Launchd,
    Manager,
    ServiceDefinition,
    manager_here,
    programs_at_home,
    tail_command,
)
from .terminal import pairs, style_for

NAME: Final = "service"
SUMMARY: Final = "run the gateway in the background, from login on"
DESCRIPTION: Final = (
    "The gateway as a service of yours, with systemd (Linux) or launchd (macOS).\n"
    "  install      write the service's file, start it now and at every login\n"
    "  uninstall    stop it, remove its file, and list what is left\n"
    "  start        start it until the next login\n"
    "  status       whether it runs, and where\n"
    "  stop, restart, logs   of the service, or of the gateway that runs without one\n"
    "Flags of `serve` that are given to install are the service's flags. It reads your\n"
    "settings file, and none of the variables of this terminal."
)
EXAMPLES: Final = """\
examples:
  caretway service install
  caretway service install --port 8080 --backend agent
  caretway service install --print         show the file, change nothing
  caretway service logs --follow
  caretway service restart
  caretway service uninstall
"""
USAGE: Final = "caretway service install|uninstall|start|stop|restart|status|logs [flags]"

_MAIN_FLAGS: Final = ("port", "host", "backend", "config", "data_dir", "log_level")
_STOP_MARGIN_S: Final = 15.0
_LOOK_S: Final = 0.05
_LOGIN_HINT: Final = "keep the key with: caretway login --api-key-stdin"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(_ACTIONS), help="What to do.")
    parser.add_argument("--print", action="store_true", dest="only_print", help="install: show the file only.")
    parser.add_argument("--follow", "-f", action="store_true", help="logs: go on with what is written.")
    parser.add_argument("--lines", "-n", type=int, default=50, metavar="N", help="logs: how many. [default: 50]")
    parser.add_argument("--json", action="store_true", help="status: as JSON.")
    add_setting_flags(parser, shown=_MAIN_FLAGS)


def run(arguments: argparse.Namespace) -> int:
    settings = settings_from(arguments)
    return _ACTIONS[arguments.action](arguments, settings)


def service_definition(settings: Settings, flags: dict[str, object], manager: type[Manager]) -> ServiceDefinition:
    """How the service starts `caretway serve` with these flags. `flags`: setting name -> value as typed."""
    from ..upstream import choose_backend

    command = [sys.executable, "-m", "caretway", "serve", *flag_words(flags, settings)]
    log_file = None
    if manager is Launchd and settings.log_file is None:
        log_file = settings.data_dir / "log" / "caretway.log"
        command += ["--log-file", str(log_file)]
    return ServiceDefinition(
        command,
        settings.data_dir,
        settings.shutdown_grace + _STOP_MARGIN_S,
        programs_at_home(
            backend=choose_backend(settings),
            local_tools=settings.local_tools,
            mcp=bool(settings.mcp or settings.mcp_config or settings.mcp_import),
            keyring=settings.token_store == "keyring",  # noqa: S105 - the name of a place
        ),
        _config_file(settings).parent,
        log_file or settings.log_file,
    )


def _config_file(settings: Settings) -> Path:
    return (settings.config or user_config_file()).absolute()


def flag_words(flags: dict[str, object], settings: Settings) -> list[str]:
    """The flags of `serve`, with values that do not depend on the current directory."""
    words: list[str] = []
    for setting in SETTINGS:
        if setting.name not in flags or setting.flag is None:
            continue
        value = flags[setting.name]
        if isinstance(value, bool):
            words.append(setting.flag if value else setting.flag.replace("--", "--no-", 1))
            continue
        read = getattr(settings, setting.name)
        for one in read if isinstance(read, tuple) else (read,):
            words += [setting.flag, str(one.absolute()) if isinstance(one, Path) else setting.kind.show(one)]
    return words


def unseen(settings: Settings) -> list[str]:
    """Warnings about variables of this terminal that the service will not get."""
    warnings = []
    for setting in SETTINGS:
        origin = settings.origin(setting.name)
        if origin.startswith("environment "):
            hint = _LOGIN_HINT if setting.secret else f"caretway config set {setting.name} VALUE"
            warnings.append(f"the service does not see {origin.removeprefix('environment ')}; {hint}")
    return warnings


def _install(arguments: argparse.Namespace, settings: Settings) -> int:
    manager = manager_here(process_environment(), home_directory())
    service = service_definition(settings, given(arguments), type(manager))
    text = manager.text(service)
    if arguments.only_print:
        print(text, end="")
        return 0
    _require(manager)
    for place in (settings.data_dir, _config_file(settings).parent):  # the unit names both, so both must exist
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if service.log_file is not None:
        service.log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    changed = _write(manager.path, text)
    remark(unseen(settings))
    manager.do("install")
    say([f"{'Wrote' if changed else 'Kept'} {manager.path}"])
    say(manager.after_install())
    return 0


def _write(path: Path, text: str) -> bool:
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)  # open to others, as the service manager expects
    write_file(path, text, mode=0o644)
    return True


def _uninstall(_: argparse.Namespace, settings: Settings) -> int:
    manager = manager_here(process_environment(), home_directory())
    if manager.path.exists():
        problem = manager.problem()
        if not problem:
            manager.do("uninstall")
        manager.path.unlink()
        if problem:
            remark([f"{problem}, so only the file was removed"])
        else:
            manager.do("reload")
        say([f"Removed {manager.path}"])
    else:
        say(["No service is installed."])
    say(left_behind(settings))
    return 0


def left_behind(settings: Settings) -> list[str]:
    """The remaining processes and files, with the commands that remove them."""
    from .setup import Journal

    rows = [("gateway", f"{one.url} runs: kill {one.pid}") for one in noted_gateways(settings.data_dir)]
    if settings.data_dir.is_dir():
        size = sum(file.stat().st_size for file in settings.data_dir.rglob("*") if file.is_file())
        rows.append(("data", f"sign-in, conversations, usage: {_size(size)}"))
        rows.append(("", f"rm -r {settings.data_dir}"))
    file = _config_file(settings)
    if file.is_file():
        rows.append(("settings", str(file)))
    rows += [(client, f"caretway setup {client} --undo") for client in Journal(settings.data_dir).clients()]
    if settings.log_file is not None and settings.log_file.is_file():
        rows.append(("log", f"{settings.log_file}*"))
    return ["What is left:", *pairs(rows, style_for(sys.stdout))] if rows else ["Nothing is left."]


def _size(count: int) -> str:
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else "less than 1 MB"


def _start(_: argparse.Namespace, __: Settings) -> int:
    manager = _installed()
    manager.do("start")
    say(["Started."])
    return 0


def _stop(_: argparse.Namespace, settings: Settings) -> int:
    if (manager := _active()) is not None:
        manager.do("stop")
        say(["Stopped."])
        return 0
    note = _gateway(settings)
    os.kill(note.pid, signal.SIGTERM)
    _until(lambda: all(one.pid != note.pid for one in noted_gateways(settings.data_dir)), settings, note)
    say([f"Stopped {note.url}."])
    return 0


def _restart(_: argparse.Namespace, settings: Settings) -> int:
    if (manager := _active()) is not None:
        manager.do("restart")
        say(["Restarted."])
        return 0
    note = _gateway(settings)
    if note.launched:
        raise CommandFailed(f"{note.url} ends with the client it was started for", "start that client again")
    if not note.restarts:
        raise CommandFailed(f"{note.url} is of an older version", f"stop it (kill {note.pid}) and start it again")
    os.kill(note.pid, RESTART)
    _until(lambda: _is_new(settings, note), settings, note)
    say([f"Restarted {note.url}."])
    return 0


def _is_new(settings: Settings, before: RunningGateway) -> bool:
    if not process_exists(before.pid):
        raise CommandFailed(f"{before.url} stopped and did not start again", "find out why: caretway doctor")
    return any(one.pid == before.pid and one.started > before.started for one in noted_gateways(settings.data_dir))


def _until(done: Callable[[], bool], settings: Settings, note: RunningGateway) -> None:
    """Waits until `done`. The limit includes the grace for running answers and the drain time of a cluster."""
    limit = (
        time.monotonic() + settings.shutdown_grace + settings.cluster_drain * bool(settings.cluster) + _STOP_MARGIN_S
    )
    while not done():
        if time.monotonic() > limit:
            raise CommandFailed(f"{note.url} does not stop", f"end it: kill -9 {note.pid}")
        time.sleep(_LOOK_S)


def _active() -> Manager | None:
    """The manager of the service, if it is installed and runs."""
    if not Path("/run/systemd").exists() and sys.platform == "linux":
        return None
    try:
        manager = manager_here(process_environment(), home_directory())
    except CommandFailed:
        return None
    if not manager.path.exists() or manager.problem():
        return None
    return manager if manager.state()[0] == "active" else None


def _gateway(settings: Settings) -> RunningGateway:
    """The only running gateway, or the one on the named port. A client's own gateway is chosen only by its port or if
    no other runs. The gateway gets a signal, so a killed gateway's note must not lead to another program that now has
    its process id."""
    notes = [one for one in noted_gateways(settings.data_dir) if answers(one.url) or not is_another_process(one)]
    found = list({note.url: note for note in reversed(notes)}.values())  # the newest of each address
    if settings.origin("port") != "default":
        found = [note for note in found if note.url.endswith(f":{settings.port}")]
    else:
        found = [note for note in found if not note.launched] or found
    if not found:
        raise CommandFailed(NOT_RUNNING, START_ONE)
    if len(found) > 1:
        ports = ", ".join(note.url.rpartition(":")[2] for note in found)
        raise CommandFailed(f"{len(found)} gateways are running", f"choose one with --port: {ports}")
    return found[0]


def _installed() -> Manager:
    manager = manager_here(process_environment(), home_directory())
    if not manager.path.exists():
        raise CommandFailed("no service is installed", "type: caretway service install")
    _require(manager)
    return manager


def _require(manager: Manager) -> None:
    if problem := manager.problem():
        raise CommandFailed(problem, ELSEWHERE)


def _status(arguments: argparse.Namespace, settings: Settings) -> int:
    manager = manager_here(process_environment(), home_directory())
    installed = manager.path.exists()
    if not installed:
        state, pid = "not installed", 0
    elif problem := manager.problem():
        state, pid = problem, 0
    else:
        state, pid = manager.state()
    running = noted_gateways(settings.data_dir)
    urls = [one.url for one in running if pid and one.pid == pid]
    url = urls[0] if urls else None
    if arguments.json:
        state_json = {"installed": installed, "state": state, "pid": pid or None, "url": url, "file": str(manager.path)}
        print(json.dumps(state_json))
    else:
        rows = [
            ("service", state),
            ("pid", str(pid) if pid else ""),
            ("address", url or ""),
            ("file", str(manager.path)),
            *(("gateway", f"{one.url} runs without the service") for one in running if not pid or one.pid != pid),
        ]
        say(pairs([row for row in rows if row[1]], style_for(sys.stdout)))
        if not installed:
            problem = manager.problem()
            tell([f"It cannot be installed: {problem}; {ELSEWHERE}" if problem else "Type: caretway service install"])
    return 0 if state == "active" else 3


def _logs(arguments: argparse.Namespace, settings: Settings) -> int:
    if (manager := _active()) is not None:
        words = manager.log_command(settings, arguments.lines, follow=arguments.follow)
    else:
        words = tail_command(_log_file(settings), arguments.lines, follow=arguments.follow)
    os.execvp(words[0], words)  # noqa: S606 - the log's own reader takes over, with its pager and keys


def _log_file(settings: Settings) -> Path:
    """The log file of the running gateway, else of the last one that `caretway launch` or the service started."""
    if noted_gateways(settings.data_dir):
        note = _gateway(settings)
        if note.log_file:
            return Path(note.log_file)
        raise CommandFailed(
            f"{note.url} writes its log to its own terminal alone", "start it with: caretway serve --log-file FILE"
        )
    for file in (settings.log_file, settings.data_dir / "log" / "caretway.log", settings.data_dir / LAUNCH_LOG):
        if file is not None and file.is_file():
            return file
    raise CommandFailed("there is no log", START_ONE)


_ACTIONS: Final[dict[str, Callable[[argparse.Namespace, Settings], int]]] = {
    "install": _install,
    "uninstall": _uninstall,
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    "status": _status,
    "logs": _logs,
}
