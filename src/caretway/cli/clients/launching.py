"""How each client is started for one process: variables, flags and temporary files that win over the user's own
settings, so that no setting selects another provider. Pure.

Keys go into variables or files, never into arguments: other users can read command lines.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from . import documents, jsonc
from .values import FILES, NAME, LaunchPlan, Target

_CODEX_KEY: Final = "CODEX_CARETWAY_KEY"
_SHARED_AGENTS: Final = ("plan", "general", "explore", "title", "summary", "compaction")
_OPENCODE_AGENTS: Final = ("build", *_SHARED_AGENTS)
_KILO_AGENTS: Final = ("code", "ask", "debug", "orchestrator", *_SHARED_AGENTS)
"""The program's built-in agents: the user may have set a model for each."""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def opencode(target: Target) -> LaunchPlan:
    return LaunchPlan(environment={"OPENCODE_CONFIG_CONTENT": _opencode_settings(target, _OPENCODE_AGENTS)})


def kilo(target: Target) -> LaunchPlan:
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
        "provider": {NAME: documents.opencode_provider(target, target.key)},
        "agent": {agent: {"model": model} for agent in agents},
    }
    return _json(settings)


def claude(target: Target) -> LaunchPlan:
    """Passes the variables as settings, too, because the `env` of the user's settings wins over variables."""
    variables = documents.claude_variables(target, target.key)
    return LaunchPlan(
        arguments=("--settings", f"{FILES}/settings.json"),
        environment=variables,
        defaults=documents.CLAUDE_DEFAULTS,
        without=("ANTHROPIC_API_KEY", *documents.CLAUDE_ELSEWHERE),
        files={"settings.json": jsonc.written(documents.claude_settings(variables))},
    )


def codex(target: Target) -> LaunchPlan:
    changes: dict[str, Any] = {"model": target.model, "model_provider": NAME}
    provider = documents.codex_provider(target, _CODEX_KEY)
    changes |= {f"model_providers.{NAME}.{name}": value for name, value in provider.items()}
    if target.window:
        changes["model_context_window"] = target.window
    words = [word for name, value in changes.items() for word in ("-c", f"{name}={documents.toml_value(value)}")]
    return LaunchPlan(arguments=tuple(words), environment={_CODEX_KEY: target.key})


def aider(target: Target) -> LaunchPlan:
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
        files={"models.json": jsonc.written(documents.aider_models(target))},
    )


def goose(target: Target) -> LaunchPlan:
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


def continue_cli(target: Target) -> LaunchPlan:
    text = documents.continue_yaml(target, target.key)
    return LaunchPlan(arguments=("--config", f"{FILES}/config.yaml"), files={"config.yaml": text})


def qwen(target: Target) -> LaunchPlan:
    return LaunchPlan(
        arguments=("--auth-type", "openai", "--openai-base-url", target.openai, "--model", target.model),
        environment={"OPENAI_API_KEY": target.key, "OPENAI_BASE_URL": target.openai, "OPENAI_MODEL": target.model},
    )


def pi(target: Target) -> LaunchPlan:
    provider = jsonc.written(documents.pi_provider(target, documents.pi_key(_PI_KEY))).rstrip()
    text = f"export default function (pi) {{\n  pi.registerProvider({_json(NAME)}, {provider});\n}}\n"
    flags = ("--extension", f"{FILES}/{NAME}.ts", "--provider", NAME, "--model", target.model)
    return LaunchPlan(flags, {_PI_KEY: target.key}, files={f"{NAME}.ts": text})


_PI_KEY: Final = "PI_CARETWAY_KEY"


def cline(target: Target) -> LaunchPlan:
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


def copilot(target: Target) -> LaunchPlan:
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


def llm(target: Target) -> LaunchPlan:
    return LaunchPlan(
        environment={"LLM_USER_PATH": FILES, "LLM_MODEL": f"{NAME}/{target.model}"},
        files={"extra-openai-models.yaml": documents.llm_models(target, target.key)},
        mirror="llm",
    )
