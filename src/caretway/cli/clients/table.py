"""The clients that `caretway launch`, `setup`, the docs and the page know: name, program, API, how it is installed, how
it is started and set up. One row each.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from . import launching, setting_up
from .values import KEY_VARIABLE, NAME, FilePlan, LaunchPlan, Surroundings, Target


@dataclass(frozen=True, slots=True)
class ClientProgram:
    name: str
    """What users type after `caretway launch`."""
    title: str
    program: str
    """The executable."""
    api: str
    install: str
    launch: Callable[[Target], LaunchPlan]
    setup: Callable[[Target, Surroundings], tuple[FilePlan, ...]] | None
    then: str
    """What to type after `setup`, with `{model}`; or, without a `setup`, why there is none."""
    seen_as: str = ""
    """What the ledger calls it. Empty where its user agent is a library's, or it sends none."""
    key_from: str = f"It takes the gateway's key from {KEY_VARIABLE}."
    """After `setup`, where the gateway requires a key."""
    page: str = "README.md"
    """Its page in docs/clients."""

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
        setting_up.opencode,
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
        setting_up.claude,
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
        setting_up.codex,
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
        setting_up.aider,
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
        setting_up.goose,
        "GOOSE_PROVIDER=caretway GOOSE_MODEL={model} goose",
    ),
    ClientProgram(
        "continue",
        "Continue",
        "cn",
        "chat, responses",
        _NPM + "@continuedev/cli",
        launching.continue_cli,
        setting_up.continue_cli,
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
        setting_up.pi,
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
        setting_up.kilo,
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
        setting_up.llm,
        "llm -m caretway/{model}",
        "",
        f"Give it the gateway's key: llm keys set {NAME}",
    ),
)

BY_NAME: Final[Mapping[str, ClientProgram]] = MappingProxyType({client.name: client for client in CLIENTS})
ALSO: Final[Mapping[str, str]] = MappingProxyType({"claude-code": "claude", "cn": "continue", "kilocode": "kilo"})
"""What else people type."""
