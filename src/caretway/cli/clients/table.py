"""The clients known to `caretway launch`, `setup`, the docs and the dashboard: name, program, API, installation, launch
and setup. One row each.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from . import documents, jsonc, launching
from .values import KEY_VARIABLE, NAME, NO_KEY, Entry, FilePlan, LaunchPlan, Surroundings, Target

# ---- setting up

# The client files that make the gateway an additional provider or profile; the user's defaults stay unchanged. Pure.


def _key(target: Target, reference: str) -> str:
    return reference if target.keyed else NO_KEY


def opencode(target: Target, around: Surroundings, product: str = "opencode") -> tuple[FilePlan, ...]:
    folder = around.config_home() / product
    path = around.first([folder / f"{product}.jsonc", folder / f"{product}.json"])
    provider = documents.opencode_provider(target, _key(target, f"{{env:{KEY_VARIABLE}}}"))
    return (FilePlan(path, "json", (Entry(("provider", NAME), provider),)),)


def kilo(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    return opencode(target, around, "kilo")


def claude(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    named = around.environment.get("CLAUDE_CONFIG_DIR")
    folder = Path(named) if named else around.home / ".claude"
    variables = documents.claude_variables(target, NO_KEY) | documents.CLAUDE_DEFAULTS
    settings = documents.claude_settings(variables)
    if target.keyed:  # its settings accept no variable, only a command that prints the key
        del settings["env"]["ANTHROPIC_AUTH_TOKEN"]
        settings["apiKeyHelper"] = f'printf %s "${KEY_VARIABLE}"'
    return (FilePlan(folder / f"{NAME}.json", "whole", text=jsonc.written(settings)),)


def codex(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    """Puts the provider into the main file; otherwise a conversation could not be resumed without the profile."""
    named = around.environment.get("CODEX_HOME")
    folder = Path(named) if named else around.home / ".codex"
    provider = documents.codex_provider(target, KEY_VARIABLE if target.keyed else "")
    lines = [f"model = {documents.toml_value(target.model)}", f'model_provider = "{NAME}"']
    if target.window:
        lines.append(f"model_context_window = {target.window}")
    return (
        FilePlan(folder / "config.toml", "toml", (Entry(("model_providers", NAME), provider),)),
        FilePlan(folder / f"{NAME}.config.toml", "whole", text="\n".join(lines) + "\n"),
    )


def aider(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    model = json.dumps(f"openai/{target.model}")
    metadata = around.home / f".aider.{NAME}.models.json"
    lines = [
        f"model: {model}",
        f"weak-model: {model}",
        f"editor-model: {model}",
        f"openai-api-base: {json.dumps(target.openai)}",
        f"set-env: [{json.dumps(f'OPENAI_BASE_URL={target.openai}')}]",
        *([] if target.keyed else [f"openai-api-key: {NO_KEY}"]),
        f"model-metadata-file: {json.dumps(str(metadata))}",
        "show-model-warnings: false",
    ]
    return (
        FilePlan(around.home / f".aider.{NAME}.yml", "whole", text="\n".join(lines) + "\n"),
        FilePlan(metadata, "whole", text=jsonc.written(documents.aider_models(target))),
    )


def goose(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    path = around.config_home() / "goose" / "custom_providers" / f"{NAME}.json"
    return (FilePlan(path, "whole", text=jsonc.written(documents.goose_provider(target))),)


def continue_cli(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    named = around.environment.get("CONTINUE_GLOBAL_DIR")
    folder = Path(named) if named else around.home / ".continue"
    text = documents.continue_yaml(target, _key(target, f"${{{{ secrets.{KEY_VARIABLE} }}}}"))
    return (FilePlan(folder / "agents" / f"{NAME}.yaml", "whole", text=text),)


def pi(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    named = around.environment.get("PI_CODING_AGENT_DIR")
    folder = Path(named) if named else around.home / ".pi" / "agent"
    provider = documents.pi_provider(target, _key(target, documents.pi_key(KEY_VARIABLE)))
    return (FilePlan(folder / "models.json", "json", (Entry(("providers", NAME), provider),)),)


def llm(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    path = llm_folder(around) / "extra-openai-models.yaml"
    return (FilePlan(path, "yaml-list", text=documents.llm_models(target, ""), mark=f'- model_id: "{NAME}/'),)


def llm_folder(around: Surroundings) -> Path:
    named = around.environment.get("LLM_USER_PATH")
    if named:
        return Path(named)
    if around.platform == "darwin":
        return around.home / "Library" / "Application Support" / "io.datasette.llm"
    return around.config_home() / "io.datasette.llm"


# ---- table


@dataclass(frozen=True, slots=True)
class ClientProgram:
    name: str
    """The name after `caretway launch`."""
    title: str
    program: str
    """The executable."""
    api: str
    install: str
    launch: Callable[[Target], LaunchPlan]
    setup: Callable[[Target, Surroundings], tuple[FilePlan, ...]] | None
    then: str
    """What to type after `setup`, with `{model}`; or why there is no `setup`."""
    seen_as: str = ""
    """The client's name in the ledger. Empty if it sends a library's user agent or none."""
    key_from: str = f"It takes the gateway's key from {KEY_VARIABLE}."
    """The note after `setup` if the gateway requires a key."""
    page: str = "README.md"
    """The client's page in docs/clients."""

    @property
    def starts_with(self) -> str:
        return f"caretway launch {self.name}"


_NPM: Final = "npm install -g "

CLIENTS: Final = (
    ClientProgram(
        "opencode",
        "OpenCode",
        "opencode",
        "chat",
        _NPM + "opencode-ai",
        launching.opencode,
        opencode,
        "opencode --model caretway/{model}",
        "opencode",
    ),
    ClientProgram(
        "claude",
        "Claude Code",
        "claude",
        "messages",
        _NPM + "@anthropic-ai/claude-code",
        launching.claude,
        claude,
        "claude --settings ~/.claude/caretway.json",
        "claude-code",
        page="claude-code.md",
    ),
    ClientProgram(
        "codex",
        "Codex",
        "codex",
        "responses",
        _NPM + "@openai/codex",
        launching.codex,
        codex,
        "codex --profile caretway",
        "codex",
        page="codex.md",
    ),
    ClientProgram(
        "aider",
        "aider",
        "aider",
        "chat",
        "uv tool install aider-chat",
        launching.aider,
        aider,
        "aider --config ~/.aider.caretway.yml",
        "",
        "It takes the gateway's key from AIDER_OPENAI_API_KEY.",
    ),
    ClientProgram(
        "goose",
        "goose",
        "goose",
        "chat, responses",
        "brew install block-goose-cli",
        launching.goose,
        goose,
        "GOOSE_PROVIDER=caretway GOOSE_MODEL={model} goose",
    ),
    ClientProgram(
        "continue",
        "Continue",
        "cn",
        "chat, responses",
        _NPM + "@continuedev/cli",
        launching.continue_cli,
        continue_cli,
        "cn --config ~/.continue/agents/caretway.yaml",
        "ls-js",
    ),
    ClientProgram(
        "qwen",
        "Qwen Code",
        "qwen",
        "chat",
        _NPM + "@qwen-code/qwen-code",
        launching.qwen,
        None,
        "its settings name one provider as the default, and nothing can be added beside it",
        "qwencode",
    ),
    ClientProgram(
        "pi",
        "pi",
        "pi",
        "chat",
        _NPM + "@earendil-works/pi-coding-agent",
        launching.pi,
        pi,
        "pi --provider caretway --model {model}",
        "pi",
    ),
    ClientProgram(
        "cline",
        "Cline",
        "cline",
        "chat",
        _NPM + "cline",
        launching.cline,
        None,
        "its file also holds the provider that it used last, and it rewrites it all the time",
    ),
    ClientProgram(
        "kilo",
        "Kilo Code",
        "kilo",
        "chat",
        _NPM + "@kilocode/cli",
        launching.kilo,
        kilo,
        "kilo --model caretway/{model}",
        "kilo-code",
    ),
    ClientProgram(
        "copilot",
        "GitHub Copilot CLI",
        "copilot",
        "chat",
        _NPM + "@github/copilot",
        launching.copilot,
        None,
        "it takes another provider from variables only",
    ),
    ClientProgram(
        "llm",
        "llm",
        "llm",
        "chat",
        "uv tool install llm",
        launching.llm,
        llm,
        "llm -m caretway/{model}",
        "",
        f"Give it the gateway's key: llm keys set {NAME}",
    ),
)

BY_NAME: Final[Mapping[str, ClientProgram]] = MappingProxyType({client.name: client for client in CLIENTS})
ALSO: Final[Mapping[str, str]] = MappingProxyType({"claude-code": "claude", "cn": "continue", "kilocode": "kilo"})
"""Other names that people type."""
