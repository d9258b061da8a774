"""Which of a client's files are written to make the gateway an additional provider or profile there; the user's
defaults are left alone. Pure.

No file gets to hold the gateway's key: where one is required, it is taken from CARETWAY_API_KEY.
"""

import json
from pathlib import Path

from . import documents, jsonc
from .values import KEY_VARIABLE, NAME, NO_KEY, Entry, FilePlan, Surroundings, Target


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
    if target.keyed:  # its settings cannot name a variable, but a command that prints the key
        del settings["env"]["ANTHROPIC_AUTH_TOKEN"]
        settings["apiKeyHelper"] = f'printf %s "${KEY_VARIABLE}"'
    return (FilePlan(folder / f"{NAME}.json", "whole", text=jsonc.written(settings)),)


def codex(target: Target, around: Surroundings) -> tuple[FilePlan, ...]:
    """The provider belongs into the main file, or a conversation could not be resumed without the profile."""
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
