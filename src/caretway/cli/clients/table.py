"""The clients known to `caretway launch`, `setup`, the docs and the dashboard: for each the gateway in its format, how
it is started for one process, which of its files `setup` writes, and at the end its row. Pure.

A launch uses variables, flags and temporary files that win over the user's own settings, so that no setting selects
another provider. Keys go into variables or files, never into arguments: other users can read command lines. A setup
makes the gateway an additional provider or profile; the user's defaults stay.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from . import jsonc
from .values import (
    FILES,
    KEY_VARIABLE,
    NAME,
    NO_KEY,
    TITLE,
    Entry,
    FilePlan,
    LaunchPlan,
    OfferedModel,
    Surroundings,
    Target,
)

OUTPUT_TOKENS: Final = 32_000
"""The room for an answer that clients reserve if they need a number; the gateway does not cut answers."""


def _key(target: Target, reference: str) -> str:
    return reference if target.keyed else NO_KEY


def _chosen_first(target: Target) -> Iterable[OfferedModel]:
    return sorted(target.listed, key=lambda model: model.id != target.model)


def _json(value: object) -> str:
    """JSON's strings, numbers and literals are also valid YAML and TOML."""
    return json.dumps(value, ensure_ascii=False)


# ---- OpenCode, Kilo Code


def opencode_provider(target: Target, key: str) -> dict[str, Any]:
    return {
        "npm": "@ai-sdk/openai-compatible",
        "name": TITLE,
        "options": {"baseURL": target.openai, "apiKey": key},
        "models": {model.id: _opencode_model(model) for model in target.listed},
    }


def _opencode_model(model: OfferedModel) -> dict[str, Any]:
    row: dict[str, Any] = {"name": model.name or model.id, "tool_call": True}
    if model.reasoning:
        row["reasoning"] = True
    if model.images:
        row |= {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}
    if model.window:
        row["limit"] = {"context": model.window, "output": min(OUTPUT_TOKENS, model.window)}
    return row


_SHARED_AGENTS: Final = ("plan", "general", "explore", "title", "summary", "compaction")
_OPENCODE_AGENTS: Final = ("build", *_SHARED_AGENTS)
_KILO_AGENTS: Final = ("code", "ask", "debug", "orchestrator", *_SHARED_AGENTS)
"""The program's built-in agents: the user may have set a model for each."""


def launch_opencode(target: Target) -> LaunchPlan:
    return LaunchPlan(environment={"OPENCODE_CONFIG_CONTENT": _opencode_settings(target, _OPENCODE_AGENTS)})


def launch_kilo(target: Target) -> LaunchPlan:
    return LaunchPlan(environment={"KILO_CONFIG_CONTENT": _opencode_settings(target, _KILO_AGENTS)})


def _opencode_settings(target: Target, agents: Sequence[str]) -> str:
    """OpenCode settings that win over its files. Other providers are disabled, so no agent's own model can select
    one."""
    model = f"{NAME}/{target.model}"
    settings = {
        "model": model,
        "small_model": model,
        "enabled_providers": [NAME],
        "disabled_providers": [],
        "provider": {NAME: opencode_provider(target, target.key)},
        "agent": {agent: {"model": model} for agent in agents},
    }
    return _json(settings)


def set_up_opencode(target: Target, around: Surroundings, product: str = "opencode") -> tuple[FilePlan, ...]:
    folder = around.config_home() / product
    path = around.first([folder / f"{product}.jsonc", folder / f"{product}.json"])
    provider = opencode_provider(target, _key(target, f"{{env:{KEY_VARIABLE}}}"))
    return (FilePlan(path, "json", (Entry(("provider", NAME), provider),)),)


def set_up_kilo(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    return set_up_opencode(target, around, "kilo")


# ---- Claude Code

CLAUDE_ELSEWHERE: Final = (
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_GATEWAY",
    "ANTHROPIC_CUSTOM_HEADERS",
)
"""Variables that make Claude Code use another provider."""
CLAUDE_DEFAULTS: Final = {"ENABLE_TOOL_SEARCH": "false"}
"""Makes Claude Code send all its tools. Otherwise it holds some back, and a run cannot get tools later."""
_FAMILIES: Final = ("haiku", "sonnet", "opus", "fable")


def claude_variables(target: Target, key: str) -> dict[str, str]:
    variables = {"ANTHROPIC_BASE_URL": target.url, "ANTHROPIC_AUTH_TOKEN": key, "ANTHROPIC_MODEL": target.model}
    variables |= {f"ANTHROPIC_DEFAULT_{family.upper()}_MODEL": _of_family(target, family) for family in _FAMILIES}
    variables["ANTHROPIC_SMALL_FAST_MODEL"] = target.model  # for titles and other side requests
    variables["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"  # no requests to its maker with our key
    variables["CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY"] = "1"  # `/model` lists the account's Claude models
    if target.window:
        variables["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(target.window)
    return variables


def claude_settings(variables: Mapping[str, str]) -> dict[str, Any]:
    """Settings with these variables. Variables that select other providers are set to the empty text."""
    return {"env": dict.fromkeys(CLAUDE_ELSEWHERE, "") | dict(variables), "apiKeyHelper": ""}


def _of_family(target: Target, family: str) -> str:
    """The model for a family such as `haiku`, which sub-agents request; the chosen model if the account has none."""
    if family in target.model:
        return target.model
    return next((model.id for model in target.models if family in model.id), target.model)


def launch_claude(target: Target) -> LaunchPlan:
    """Passes the variables as settings, too, because the `env` of the user's settings wins over variables."""
    variables = claude_variables(target, target.key)
    return LaunchPlan(
        arguments=("--settings", f"{FILES}/settings.json"),
        environment=variables,
        defaults=CLAUDE_DEFAULTS,
        without=("ANTHROPIC_API_KEY", *CLAUDE_ELSEWHERE),
        files={"settings.json": jsonc.written(claude_settings(variables))},
    )


def set_up_claude(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    folder = around.folder("CLAUDE_CONFIG_DIR", ".claude")
    variables = claude_variables(target, NO_KEY) | CLAUDE_DEFAULTS
    settings = claude_settings(variables)
    if target.keyed:  # its settings accept no variable, only a command that prints the key
        del settings["env"]["ANTHROPIC_AUTH_TOKEN"]
        settings["apiKeyHelper"] = f'printf %s "${KEY_VARIABLE}"'
    return (FilePlan(folder / f"{NAME}.json", "whole", text=jsonc.written(settings)),)


# ---- Codex


def codex_provider(target: Target, key_variable: str) -> dict[str, Any]:
    provider = {
        "name": TITLE,
        "base_url": target.openai,
        "wire_api": "responses",
        "requires_openai_auth": False,
        "supports_websockets": True,
    }
    return provider | ({"env_key": key_variable} if key_variable else {})


_CODEX_KEY: Final = "CODEX_CARETWAY_KEY"


def launch_codex(target: Target) -> LaunchPlan:
    changes: dict[str, Any] = {"model": target.model, "model_provider": NAME}
    provider = codex_provider(target, _CODEX_KEY)
    changes |= {f"model_providers.{NAME}.{name}": value for name, value in provider.items()}
    if target.window:
        changes["model_context_window"] = target.window
    words = [word for name, value in changes.items() for word in ("-c", f"{name}={_json(value)}")]
    return LaunchPlan(arguments=tuple(words), environment={_CODEX_KEY: target.key})


def set_up_codex(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    """Puts the provider into the main file; otherwise a conversation could not be resumed without the profile."""
    folder = around.folder("CODEX_HOME", ".codex")
    provider = codex_provider(target, KEY_VARIABLE if target.keyed else "")
    lines = [f"model = {_json(target.model)}", f'model_provider = "{NAME}"']
    if target.window:
        lines.append(f"model_context_window = {target.window}")
    return (
        FilePlan(folder / "config.toml", "toml", (Entry(("model_providers", NAME), provider),)),
        FilePlan(folder / f"{NAME}.config.toml", "whole", text="\n".join(lines) + "\n"),
    )


# ---- aider


def aider_models(target: Target) -> dict[str, Any]:
    return {
        f"openai/{model.id}": {
            "litellm_provider": "openai",
            "mode": "chat",
            "max_input_tokens": model.window,
            "supports_vision": model.images,
        }
        for model in target.listed
        if model.window
    }


def launch_aider(target: Target) -> LaunchPlan:
    """Aider's flags win over its files and .env files, and these over variables. LiteLLM has one more variable."""
    model = f"openai/{target.model}"
    flags = ("--model", model, "--weak-model", model, "--editor-model", model, "--openai-api-base", target.openai)
    more = ("--set-env", f"OPENAI_BASE_URL={target.openai}")
    return LaunchPlan(
        arguments=(*flags, *more, "--model-metadata-file", f"{FILES}/models.json", "--no-show-model-warnings"),
        environment={
            "OPENAI_API_BASE": target.openai,
            "OPENAI_API_KEY": target.key,
            "AIDER_OPENAI_API_KEY": target.key,
        },
        files={"models.json": jsonc.written(aider_models(target))},
    )


def set_up_aider(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
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
        FilePlan(metadata, "whole", text=jsonc.written(aider_models(target))),
    )


# ---- goose


def goose_provider(target: Target) -> dict[str, Any]:
    return {
        "name": NAME,
        "engine": "openai",
        "display_name": TITLE,
        "description": "Cursor models by the local gateway",
        "api_key_env": KEY_VARIABLE if target.keyed else "",
        "requires_auth": target.keyed,
        "base_url": f"{target.openai}/chat/completions",
        "models": [
            {"name": model.id, "context_limit": model.window or _GOOSE_WINDOW} for model in _chosen_first(target)
        ],
        "supports_streaming": True,
    }


_GOOSE_WINDOW: Final = 128_000
"""The program's default for a model with an unknown window: the field is required."""


def launch_goose(target: Target) -> LaunchPlan:
    """Goose's variables win over its file and its keyring."""
    variables = {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": target.model,
        "GOOSE_FAST_MODEL": target.model,
        "GOOSE_PLANNER_PROVIDER": "openai",
        "GOOSE_PLANNER_MODEL": target.model,
        "OPENAI_HOST": target.url,
        "OPENAI_BASE_PATH": "v1/chat/completions",
        "OPENAI_API_KEY": target.key,
    }
    if target.window:
        variables["GOOSE_CONTEXT_LIMIT"] = str(target.window)
    elsewhere = ("OPENAI_BASE_URL", "OPENAI_CUSTOM_HEADERS", "OPENAI_ORGANIZATION", "OPENAI_PROJECT")
    return LaunchPlan(environment=variables, without=(*elsewhere, "GOOSE_LEAD_MODEL", "GOOSE_LEAD_PROVIDER"))


def set_up_goose(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    path = around.config_home() / "goose" / "custom_providers" / f"{NAME}.json"
    return (FilePlan(path, "whole", text=jsonc.written(goose_provider(target))),)


# ---- Continue


def continue_yaml(target: Target, key: str) -> str:
    """Lists the chosen model first, because the program uses the first one."""
    rows = [f"name: {TITLE}", "version: 1.0.0", "schema: v1", "models:"]
    for model in _chosen_first(target):
        rows += [
            f"  - name: {_json(model.name or model.id)}",
            "    provider: openai",
            f"    model: {_json(model.id)}",
            f"    apiBase: {_json(target.openai)}",
            f"    apiKey: {_json(key)}",
            "    roles: [chat, edit, apply]",
            f"    capabilities: [{', '.join(['tool_use', *(['image_input'] if model.images else [])])}]",
        ]
        if model.window:
            rows += ["    defaultCompletionOptions:", f"      contextLength: {model.window}"]
    return "\n".join(rows) + "\n"


def launch_continue_cli(target: Target) -> LaunchPlan:
    text = continue_yaml(target, target.key)
    return LaunchPlan(arguments=("--config", f"{FILES}/config.yaml"), files={"config.yaml": text})


def set_up_continue_cli(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    folder = around.folder("CONTINUE_GLOBAL_DIR", ".continue")
    text = continue_yaml(target, _key(target, f"${{{{ secrets.{KEY_VARIABLE} }}}}"))
    return (FilePlan(folder / "agents" / f"{NAME}.yaml", "whole", text=text),)


# ---- Qwen Code


def launch_qwen(target: Target) -> LaunchPlan:
    return LaunchPlan(
        arguments=("--auth-type", "openai", "--openai-base-url", target.openai, "--model", target.model),
        environment={"OPENAI_API_KEY": target.key, "OPENAI_BASE_URL": target.openai, "OPENAI_MODEL": target.model},
    )


# ---- pi


def pi_key(variable: str) -> str:
    """A command that prints the key: `$NAME` is a literal key up to 0.74, `NAME` in later versions."""
    return f'!printf %s "${variable}"'


def pi_provider(target: Target, key: str) -> dict[str, Any]:
    return {
        "name": TITLE,
        "baseUrl": target.openai,
        "apiKey": key,
        "api": "openai-completions",
        "models": [_pi_model(model) for model in _chosen_first(target)],
    }


def _pi_model(model: OfferedModel) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": model.id,
        "name": model.name or model.id,
        "reasoning": model.reasoning,
        "input": ["text", "image"] if model.images else ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "maxTokens": OUTPUT_TOKENS,
    }
    return row | ({"contextWindow": model.window} if model.window else {})


_PI_KEY: Final = "PI_CARETWAY_KEY"


def launch_pi(target: Target) -> LaunchPlan:
    provider = jsonc.written(pi_provider(target, pi_key(_PI_KEY))).rstrip()
    text = f"export default function (pi) {{\n  pi.registerProvider({_json(NAME)}, {provider});\n}}\n"
    flags = ("--extension", f"{FILES}/{NAME}.ts", "--provider", NAME, "--model", target.model)
    return LaunchPlan(flags, {_PI_KEY: target.key}, files={f"{NAME}.ts": text})


def set_up_pi(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    folder = around.folder("PI_CODING_AGENT_DIR", ".pi/agent")
    provider = pi_provider(target, _key(target, pi_key(KEY_VARIABLE)))
    return (FilePlan(folder / "models.json", "json", (Entry(("providers", NAME), provider),)),)


# ---- Cline


def launch_cline(target: Target) -> LaunchPlan:
    provider: Mapping[str, object] = {
        "settings": {
            "provider": "openai-compatible",
            "apiKey": target.key,
            "model": target.model,
            "baseUrl": target.openai,
        },
        "updatedAt": "2026-01-01T00:00:00.000Z",
        "tokenSource": "manual",
    }
    settings = {
        "version": 1,
        "lastUsedProvider": "openai-compatible",
        "modes": {},
        "providers": {"openai-compatible": provider},
    }
    return LaunchPlan(
        arguments=("--provider", "openai-compatible", "--model", target.model),
        environment={
            "CLINE_PROVIDER_SETTINGS_PATH": f"{FILES}/providers.json",
            "CLINE_SESSION_BACKEND_MODE": "local",  # its hub would outlive it and pass our settings on
        },
        files={"providers.json": jsonc.written(settings)},
    )


# ---- GitHub Copilot CLI


def launch_copilot(target: Target) -> LaunchPlan:
    variables = {
        "COPILOT_PROVIDER_BASE_URL": target.openai,
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": target.key,
        "COPILOT_MODEL": target.model,
    }
    if target.window:
        variables["COPILOT_PROVIDER_MAX_PROMPT_TOKENS"] = str(target.window)
    names = ("API_KEY_COMMAND", "BEARER_TOKEN", "WIRE_API", "TRANSPORT", "HEADERS", "MODEL_ID", "WIRE_MODEL")
    return LaunchPlan(environment=variables, without=tuple(f"COPILOT_PROVIDER_{name}" for name in names))


# ---- Factory Droid


def launch_droid(target: Target) -> LaunchPlan:
    """Its runtime settings are merged with the user's for one process."""
    provider = {"baseUrl": target.openai, "apiKey": target.key, "provider": "generic-chat-completion-api"}
    settings = {
        "customModels": [
            {"id": f"custom:{one.id}", "model": one.id, "displayName": one.name or one.id, **provider}
            for one in target.listed
        ],
        "sessionDefaultSettings": {"model": f"custom:{target.model}"},
    }
    return LaunchPlan(
        environment={"FACTORY_RUNTIME_SETTINGS_PATH": f"{FILES}/settings.json"},
        files={"settings.json": jsonc.written(settings)},
    )


# ---- Grok Build


def launch_grok(target: Target) -> LaunchPlan:
    return LaunchPlan(
        arguments=("--model", target.model),
        environment={"GROK_MODELS_BASE_URL": target.openai, "XAI_API_KEY": target.key},
    )


def set_up_grok(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    named = around.environment.get("GROK_HOME")
    folder = Path(named) if named else around.home / ".grok"
    model: dict[str, Any] = {"name": TITLE, "model": target.model, "base_url": target.openai}
    model |= {"env_key": KEY_VARIABLE} if target.keyed else {"api_key": NO_KEY}
    if target.window:
        model["context_window"] = target.window
    return (FilePlan(folder / "config.toml", "toml", (Entry(("model", NAME), model),)),)


# ---- llm


def llm_models(target: Target, key: str) -> str:
    return "".join(llm_model(model, target, key) for model in target.listed)


def llm_model(model: OfferedModel, target: Target, key: str) -> str:
    rows = [
        f"- model_id: {_json(f'{NAME}/{model.id}')}",
        f"  model_name: {_json(model.id)}",
        f"  api_base: {_json(target.openai)}",
        "  supports_tools: true",
        "  supports_schema: true",
        *(["  vision: true"] if model.images else []),
        *(["  headers:", f"    x-api-key: {_json(key)}"] if key else []),
        *([f"  api_key_name: {NAME}"] if target.keyed and not key else []),
    ]
    return "\n".join(rows) + "\n"


def launch_llm(target: Target) -> LaunchPlan:
    return LaunchPlan(
        environment={"LLM_USER_PATH": FILES, "LLM_MODEL": f"{NAME}/{target.model}"},
        files={"extra-openai-models.yaml": llm_models(target, target.key)},
        mirror="llm",
    )


def set_up_llm(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    path = llm_folder(around) / "extra-openai-models.yaml"
    return (FilePlan(path, "yaml-list", text=llm_models(target, ""), mark=f'- model_id: "{NAME}/'),)


def llm_folder(around: Surroundings) -> Path:
    named = around.environment.get("LLM_USER_PATH")
    if named:
        return Path(named)
    if around.platform == "darwin":
        return around.home / "Library" / "Application Support" / "io.datasette.llm"
    return around.config_home() / "io.datasette.llm"


# ---- the table


@dataclass(frozen=True, slots=True)
class ClientProgram:
    name: str
    """The name after `caretway launch`."""
    title: str
    install: str
    launch: Callable[[Target], LaunchPlan]
    setup: Callable[[Target, Surroundings], tuple[FilePlan, ...]] | None
    then: str
    """What to type after `setup`, with `{model}`; or why there is no `setup`."""
    api: str = "chat"
    executable: str = ""
    """The program to start, if it is not called like the client; otherwise empty."""
    seen_as: str = ""
    """The client's name in the ledger. Empty if it sends a library's user agent or none."""
    key_from: str = f"It takes the gateway's key from {KEY_VARIABLE}."
    """The note after `setup` if the gateway requires a key."""
    page: str = "README.md"
    """The client's page in docs/clients."""

    @property
    def program(self) -> str:
        return self.executable or self.name

    @property
    def starts_with(self) -> str:
        return f"caretway launch {self.name}"


_NPM: Final = "npm install -g "


CLIENTS: Final = (
    ClientProgram(
        "opencode",
        "OpenCode",
        _NPM + "opencode-ai",
        launch_opencode,
        set_up_opencode,
        "opencode --model caretway/{model}",
        seen_as="opencode",
    ),
    ClientProgram(
        "claude",
        "Claude Code",
        _NPM + "@anthropic-ai/claude-code",
        launch_claude,
        set_up_claude,
        "claude --settings ~/.claude/caretway.json",
        api="messages",
        seen_as="claude-code",
        page="claude-code.md",
    ),
    ClientProgram(
        "codex",
        "Codex",
        _NPM + "@openai/codex",
        launch_codex,
        set_up_codex,
        "codex --profile caretway",
        api="responses",
        seen_as="codex",
        page="codex.md",
    ),
    ClientProgram(
        "aider",
        "aider",
        "uv tool install aider-chat",
        launch_aider,
        set_up_aider,
        "aider --config ~/.aider.caretway.yml",
        key_from="It takes the gateway's key from AIDER_OPENAI_API_KEY.",
    ),
    ClientProgram(
        "goose",
        "goose",
        "brew install block-goose-cli",
        launch_goose,
        set_up_goose,
        "GOOSE_PROVIDER=caretway GOOSE_MODEL={model} goose",
        api="chat, responses",
    ),
    ClientProgram(
        "continue",
        "Continue",
        _NPM + "@continuedev/cli",
        launch_continue_cli,
        set_up_continue_cli,
        "cn --config ~/.continue/agents/caretway.yaml",
        api="chat, responses",
        executable="cn",
        seen_as="ls-js",
    ),
    ClientProgram(
        "qwen",
        "Qwen Code",
        _NPM + "@qwen-code/qwen-code",
        launch_qwen,
        None,
        "its settings name one provider as the default, and nothing can be added beside it",
        seen_as="qwencode",
    ),
    ClientProgram(
        "pi",
        "pi",
        _NPM + "@earendil-works/pi-coding-agent",
        launch_pi,
        set_up_pi,
        "pi --provider caretway --model {model}",
        seen_as="pi",
    ),
    ClientProgram(
        "cline",
        "Cline",
        _NPM + "cline",
        launch_cline,
        None,
        "its file also holds the provider that it used last, and it rewrites it all the time",
    ),
    ClientProgram(
        "kilo",
        "Kilo Code",
        _NPM + "@kilocode/cli",
        launch_kilo,
        set_up_kilo,
        "kilo --model caretway/{model}",
        seen_as="kilo-code",
    ),
    ClientProgram(
        "copilot",
        "GitHub Copilot CLI",
        _NPM + "@github/copilot",
        launch_copilot,
        None,
        "it takes another provider from variables only",
    ),
    ClientProgram(
        "droid",
        "Factory Droid",
        _NPM + "droid",
        launch_droid,
        None,
        "its settings keep all custom models in one list",
        seen_as="factory-cli",
    ),
    ClientProgram(
        "grok",
        "Grok Build",
        _NPM + "@xai-official/grok",
        launch_grok,
        set_up_grok,
        "grok --model caretway",
        seen_as="grok-shell",
    ),
    ClientProgram(
        "llm",
        "llm",
        "uv tool install llm",
        launch_llm,
        set_up_llm,
        "llm -m caretway/{model}",
        key_from=f"Give it the gateway's key: llm keys set {NAME}",
    ),
)

BY_NAME: Final[Mapping[str, ClientProgram]] = MappingProxyType({client.name: client for client in CLIENTS})


ALSO: Final[Mapping[str, str]] = MappingProxyType({"claude-code": "claude", "cn": "continue", "kilocode": "kilo"})
"""Other names that people type."""
