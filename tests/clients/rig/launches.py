"""`caretway launch` and `caretway setup` with the real clients, in three modes beside the others.

* `launch`: a fresh home, one command, no gateway that runs: a tool call is done.
* `redirected`: the same, where the user's own files and variables lead elsewhere (a closed port).
* `setup`: the gateway is written into the client's files beside the user's own, the client is used, and `--undo` puts
  the files back: byte for byte where the client did not rewrite them itself, else without anything of ours.
"""

import json
import re
import shutil
import sys
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rig import Client, Outcome, Run

ELSEWHERE = "http://127.0.0.1:9"
OURS = re.compile("caretway(?!-client)", re.IGNORECASE)  # the rig's own directories have the name, too


@dataclass(frozen=True)
class Start:
    """`words`: what makes the client do the prompt at once, with PROMPT in its place or on stdin."""

    name: str
    words: Sequence[str]
    use: Sequence[str] = ()
    """How it is used after `setup`, before `words`. Empty: it has no `setup`."""
    own: Mapping[str, str] = field(default_factory=dict)
    """The user's files: `~/` in the home, others in the project."""
    harder: Mapping[str, str] = field(default_factory=dict)
    """More of them, for `redirected`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The user's variables, for `redirected`."""
    always: Mapping[str, str] = field(default_factory=dict)
    """Variables of the test, in every mode."""
    edits: bool = False
    """It has no tools: it writes a file."""


def caretway(run: Run, *words: str, stdin: str | None = None) -> Outcome:
    return run.start(str(Path(sys.executable).with_name("caretway")), *words, stdin=stdin)


def begin(run: Run, start: Start) -> Outcome:
    places = [run.place / "venv/bin", *run.place.glob("node_modules/@aaif/*/bin")]
    run.env["PATH"] = ":".join([*map(str, places), run.env["PATH"]])
    run.env |= start.always
    for name in ("CONTINUE_METRICS_ENABLED", "CONTINUE_CLI_ENABLE_TELEMETRY", "GOOSE_TELEMETRY_ENABLED"):
        run.env[name] = "0"
    modes: dict[str, Callable[[Run, Start], Outcome]] = {"launch": launch, "redirected": redirected, "setup": set_up}
    return modes.get(run.mode, launch_named)(run, start)


def launch(run: Run, start: Start, *flags: str) -> Outcome:
    words, stdin = filled(run, start)
    return judged(run, start, caretway(run, "launch", start.name, *flags, "--", *words, stdin=stdin))


def launch_named(run: Run, start: Start) -> Outcome:
    return launch(run, start, "--model", run.model)


def redirected(run: Run, start: Start) -> Outcome:
    lay(run, {**start.own, **start.harder})
    run.env |= start.variables
    before = seen(run, start.own)
    outcome = launch(run, start)
    changed = [path for path, text in seen(run, start.own).items() if text != before[path] and OURS.search(text)]
    if changed:
        outcome.passed, outcome.reason = False, f"launch left something in {', '.join(changed)}"
    return outcome


def set_up(run: Run, start: Start) -> Outcome:
    run.env["CARETWAY_PORT"] = str(urllib.parse.urlsplit(run.base).port)
    lay(run, start.own)
    before = seen(run, start.own)
    done = caretway(run, "setup", start.name, "--yes", "--model", run.model)
    if done.code:
        return failed(done, "setup")
    words, stdin = filled(run, start)
    use = [word.replace("{model}", run.model).replace("~", str(run.home)) for word in start.use]
    while "=" in use[0]:
        name, _, value = use.pop(0).partition("=")
        run.env[name] = value
    program = shutil.which(use[0], path=run.env["PATH"]) or use[0]
    written = seen(run, start.own)
    outcome = judged(run, start, run.start(program, *use[1:], *words, stdin=stdin))
    if outcome.passed is False:
        return outcome
    left = seen(run, start.own)
    undone = caretway(run, "setup", start.name, "--undo", "--yes")
    if undone.code:
        return failed(undone, "setup --undo")
    for path, text in seen(run, start.own).items():
        rewritten = left[path] != written[path] and not OURS.search(text) and ELSEWHERE in text
        if text != before[path] and not rewritten:
            return failed(Outcome(1, text, undone.err), f"{path} is not as it was")
    return outcome


def failed(outcome: Outcome, what: str) -> Outcome:
    return replace(outcome, passed=False, reason=f"{what}: exit code {outcome.code}")


def filled(run: Run, start: Start) -> tuple[list[str], str | None]:
    prompt = run.prompt()
    if start.edits:
        prompt = run.prompt("sim: say " + r"\n".join(["hello.txt", "```", run.nonce, "```"]))
    if "PROMPT" in start.words:
        return [prompt if word == "PROMPT" else word for word in start.words], None
    return list(start.words), prompt


def judged(run: Run, start: Start, outcome: Outcome) -> Outcome:
    if not start.edits:
        return run.judge(outcome)
    written = run.work / "hello.txt"
    outcome.passed = outcome.code == 0 and written.exists() and written.read_text().strip() == run.nonce
    outcome.reason = "" if outcome.passed else f"exit code {outcome.code}, the edit did not reach the file"
    return outcome


def lay(run: Run, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        run.write(place(run, path), text)


def place(run: Run, path: str) -> Path:
    return run.home / path[2:] if path.startswith("~/") else run.work / path


def seen(run: Run, files: Mapping[str, str]) -> dict[str, str]:
    return {path: place(run, path).read_text() for path in files}


def with_launch(client: Client, start: Start) -> Client:
    """The client with our three modes, or those that it can."""
    modes = ("launch", "redirected", *(["setup"] if start.use else []))

    def go(run: Run) -> Outcome:
        return begin(run, start) if run.mode in modes else client.go(run)

    return replace(client, go=go, modes=(*client.modes, *modes))


# ---------------------------------------------------------------------------------------------- the clients

OTHER = {"other": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": ELSEWHERE + "/v1", "apiKey": "x"}, "models": {"x": {}}}}
OPENCODE = f'{{\n\t// mine\n\t"model": "other/x", /* the default */\n\t"provider": {json.dumps(OTHER)},\n}}\n'
STRICT = json.dumps(
    {
        "model": "other/x",
        "small_model": "other/x",
        "enabled_providers": ["other"],
        "disabled_providers": ["caretway"],
        "agent": {"build": {"model": "other/x"}, "code": {"model": "other/x"}},
    }
)
CLAUDE = json.dumps(
    {
        "env": {
            "ANTHROPIC_BASE_URL": ELSEWHERE,
            "ANTHROPIC_AUTH_TOKEN": "theirs",
            "ANTHROPIC_MODEL": "elsewhere",
            "CLAUDE_CODE_USE_BEDROCK": "1",
        },
        "apiKeyHelper": "echo theirs",
        "model": "opus",
    }
)
CODEX = f'''model = "x"  # mine
model_provider = "other"

[model_providers.other]
name = "other"
base_url = "{ELSEWHERE}/v1"
'''
AIDER = f"model: openai/other\nopenai-api-base: {ELSEWHERE}/v1\nopenai-api-key: theirs\nweak-model: openai/weak\n"
AIDER_ENV = f"OPENAI_API_BASE={ELSEWHERE}/v1\nOPENAI_API_KEY=theirs\nOPENAI_BASE_URL={ELSEWHERE}\nAIDER_MODEL=openai/env\nAIDER_OPENAI_API_BASE={ELSEWHERE}\n"
GOOSE = f"GOOSE_PROVIDER: anthropic\nGOOSE_MODEL: other\nOPENAI_HOST: {ELSEWHERE}\nOPENAI_BASE_PATH: v9/x\nGOOSE_LEAD_MODEL: lead\n"
CONTINUE = f"name: x\nversion: 1.0.0\nschema: v1\nmodels:\n  - name: o\n    provider: openai\n    model: o\n    apiBase: {ELSEWHERE}/v1\n    apiKey: x\n"
PI = '{\n  "providers": {\n    "own": {"baseUrl": "' + ELSEWHERE + '/v1", "apiKey": "x", "api": "openai-completions", "models": [{"id": "default"}]}\n  }\n}\n'
QWEN = json.dumps({"security": {"auth": {"selectedType": "openai", "apiKey": "theirs", "baseUrl": ELSEWHERE + "/v1"}}, "model": {"name": "x"}})
CLINE = json.dumps({"version": 1, "lastUsedProvider": "anthropic", "modes": {}, "providers": {"anthropic": {"settings": {"provider": "anthropic", "apiKey": "x", "baseUrl": ELSEWHERE}, "updatedAt": "2026-11-17T13:33:27.648Z", "tokenSource": "manual"}}})
DROID = json.dumps({"customModels": [{"model": "x", "displayName": "X", "baseUrl": ELSEWHERE, "apiKey": "x", "provider": "anthropic"}], "sessionDefaultSettings": {"model": "custom:X-0"}})
GROK = f'[models]\ndefault = "other"  # mine\n\n[model.other]\nmodel = "x"\nbase_url = "{ELSEWHERE}/v1"\napi_key = "x"\n'
LLM = f"# mine\n- model_id: own\n  model_name: o\n  api_base: {ELSEWHERE}/v1\n"
BASE = {"OPENAI_BASE_URL": ELSEWHERE, "OPENAI_API_KEY": "theirs"}

PI_START = Start(
    "pi",
    ["-p", "PROMPT"],
    ["pi", "--provider", "caretway", "--model", "{model}"],
    {"~/.pi/agent/models.json": PI},
    {"~/.pi/agent/settings.json": '{"defaultProvider": "anthropic", "defaultModel": "x"}'},
)
STARTS = {
    "opencode": Start(
        "opencode",
        ["run"],
        ["opencode", "--model", "caretway/{model}"],
        {"~/.config/opencode/opencode.jsonc": OPENCODE},
        {"opencode.json": STRICT},
    ),
    "claude-code": Start(
        "claude",
        ["-p", "PROMPT", "--allowedTools", "Bash"],
        ["claude", "--settings", "~/.claude/caretway.json"],
        {"~/.claude/settings.json": CLAUDE},
        {".claude/settings.local.json": CLAUDE},
        {"ANTHROPIC_API_KEY": "sk-theirs", "ANTHROPIC_BASE_URL": ELSEWHERE},
        {"IS_SANDBOX": "1"},
    ),
    "codex": Start(
        "codex",
        ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--color", "never", "PROMPT"],
        ["codex", "--profile", "caretway"],
        {"~/.codex/config.toml": CODEX},
        variables=BASE,
    ),
    "codex-code": Start(
        "codex",
        ["-m", "gpt-5.6-sol", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--color", "never", "PROMPT"],
    ),
    "aider": Start(
        "aider",
        [*"--yes-always --no-pretty --no-check-update --no-show-release-notes --analytics-disable --no-gitignore".split(), *"--edit-format whole --no-auto-commits --map-tokens 0 --message".split(), "PROMPT", "hello.txt"],
        ["aider", "--config", "~/.aider.caretway.yml"],
        {"~/.aider.conf.yml": AIDER},
        {".aider.conf.yml": AIDER, ".env": AIDER_ENV, "~/.env": AIDER_ENV},
        BASE,
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        edits=True,
    ),
    "goose": Start(
        "goose",
        ["run", "--no-session", "--with-builtin", "developer", "-t", "PROMPT"],
        ["GOOSE_PROVIDER=caretway", "GOOSE_MODEL={model}", "goose"],
        {"~/.config/goose/config.yaml": GOOSE},
        variables={**BASE, "GOOSE_PROVIDER": "ollama"},
        always={"GOOSE_MODE": "auto", "GOOSE_DISABLE_KEYRING": "1"},
    ),
    "continue": Start(
        "continue",
        ["--auto", "-p", "PROMPT"],
        ["cn", "--config", "~/.continue/agents/caretway.yaml"],
        {"~/.continue/config.yaml": CONTINUE},
        variables=BASE,
    ),
    "qwen": Start("qwen", ["--yolo", "-p", "PROMPT"], own={"~/.qwen/settings.json": QWEN}, variables=BASE),
    "pi": PI_START,
    "pi-node-20": PI_START,
    "cline": Start("cline", ["PROMPT"], own={"~/.cline/data/settings/providers.json": CLINE}),
    "kilo": Start("kilo", ["run", "--auto"], ["kilo", "--model", "caretway/{model}"], {"~/.config/kilo/kilo.json": OPENCODE}, {"kilo.json": STRICT}),
    "copilot": Start(
        "copilot",
        ["--allow-all-tools", "-p", "PROMPT"],
        variables={"COPILOT_PROVIDER_TYPE": "azure", "COPILOT_PROVIDER_BASE_URL": ELSEWHERE, "COPILOT_PROVIDER_BEARER_TOKEN": "x"},
    ),
    "droid": Start("droid", ["exec", "--auto", "high", "PROMPT"], own={"~/.factory/settings.json": DROID}),
    "grok": Start(
        "grok",
        ["--always-approve", "-p", "PROMPT"],
        ["grok", "--model", "caretway"],
        {"~/.grok/config.toml": GROK},
        variables={"XAI_API_KEY": "theirs"},
        always={"GROK_DISABLE_AUTOUPDATER": "1"},
    ),
    "llm": Start(
        "llm",
        ["--functions", "def cat() -> str:\n    return open('nonce.txt').read()", "PROMPT"],
        ["llm", "-m", "caretway/{model}"],
        {"~/.config/io.datasette.llm/extra-openai-models.yaml": LLM},
        variables={**BASE, "LLM_MODEL": "own"},
    ),
}
