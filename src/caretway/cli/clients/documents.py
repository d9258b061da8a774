"""The gateway in each client's configuration format: providers, profiles and model lists with their true context
windows. Pure.

`launching` passes these to one process; `setup` writes those that `table` names to files.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .values import KEY_VARIABLE, NAME, TITLE, OfferedModel, Target

OUTPUT_TOKENS: Final = 32_000
"""The room for an answer that clients reserve if they need a number; the gateway does not cut answers."""
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


def toml_value(value: object) -> str:
    """JSON's strings, numbers and literals are also valid TOML."""
    return json.dumps(value, ensure_ascii=False)


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


def codex_provider(target: Target, key_variable: str) -> dict[str, Any]:
    provider = {
        "name": TITLE,
        "base_url": target.openai,
        "wire_api": "responses",
        "requires_openai_auth": False,
        "supports_websockets": True,
    }
    return provider | ({"env_key": key_variable} if key_variable else {})


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


def continue_yaml(target: Target, key: str) -> str:
    """Lists the chosen model first, because the program uses the first one."""
    chosen = sorted(target.listed, key=lambda model: model.id != target.model)
    rows = [f"name: {TITLE}", "version: 1.0.0", "schema: v1", "models:"]
    for model in chosen:
        rows += [
            f"  - name: {_quoted(model.name or model.id)}",
            "    provider: openai",
            f"    model: {_quoted(model.id)}",
            f"    apiBase: {_quoted(target.openai)}",
            f"    apiKey: {_quoted(key)}",
            "    roles: [chat, edit, apply]",
            f"    capabilities: [{', '.join(['tool_use', *(['image_input'] if model.images else [])])}]",
        ]
        if model.window:
            rows += ["    defaultCompletionOptions:", f"      contextLength: {model.window}"]
    return "\n".join(rows) + "\n"


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


def llm_models(target: Target, key: str) -> str:
    return "".join(llm_model(model, target, key) for model in target.listed)


def llm_model(model: OfferedModel, target: Target, key: str) -> str:
    rows = [
        f"- model_id: {_quoted(f'{NAME}/{model.id}')}",
        f"  model_name: {_quoted(model.id)}",
        f"  api_base: {_quoted(target.openai)}",
        "  supports_tools: true",
        "  supports_schema: true",
        *(["  vision: true"] if model.images else []),
        *(["  headers:", f"    x-api-key: {_quoted(key)}"] if key else []),
        *([f"  api_key_name: {NAME}"] if target.keyed and not key else []),
    ]
    return "\n".join(rows) + "\n"


def _chosen_first(target: Target) -> Iterable[OfferedModel]:
    return sorted(target.listed, key=lambda model: model.id != target.model)


def _quoted(text: str) -> str:
    """A JSON string is a valid YAML string."""
    return json.dumps(text, ensure_ascii=False)
