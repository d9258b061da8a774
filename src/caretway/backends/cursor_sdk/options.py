"""Converts our values to the SDK's and back: agent options (client tools only), messages, tool results as MCP content,
lists of models, its exceptions. With bridge.py the only one to import the package, when first used."""

from typing import Any

from ...core.errors import GatewayError
from ...core.request import Image, Text, ToolResult
from ...core.turn import ModelInfo, ModelVariant
from .callbacks import ToolAnswer
from .compose import SdkOpening
from .faults import fault_from_sdk
from .layout import Layout

REASONING_PARAMETERS = frozenset({"effort", "reasoning_effort", "reasoning", "thinking"})


def agent_options(opening: SdkOpening, agent_id: str, layout: Layout, api_key: str) -> Any:
    """Client tools only; without any, no tools at all. The built-in ones stay off; bridge.py says what holds them."""
    import cursor_sdk as sdk

    def never(arguments: Any, context: Any) -> str:
        raise RuntimeError("the bridge calls the gateway's own callback server")

    custom = {
        tool.name: sdk.CustomTool(
            execute=never,
            description=tool.description or tool.name,
            input_schema=dict(tool.schema) or {"type": "object"},
        )
        for tool in opening.tools
    }
    return sdk.AgentOptions(
        model=selection(opening),
        api_key=api_key,
        agent_id=agent_id,
        tools=["mcp"] if custom else [],
        local=sdk.LocalAgentOptions(
            cwd=str(layout.workspace(agent_id)),
            setting_sources=["project"] if opening.rules else None,
            custom_tools=custom or None,
        ),
    )


def selection(opening: SdkOpening) -> Any:
    import cursor_sdk as sdk

    return sdk.ModelSelection(
        opening.model, tuple(sdk.ModelParameterValue(name, value) for name, value in opening.parameters)
    )


def user_message(opening: SdkOpening) -> Any:
    import cursor_sdk as sdk

    images = tuple(sdk.SDKImage.from_data(image.data, image.mime_type) for image in opening.images)
    return sdk.UserMessage(opening.text, images or None)


def sdk_errors() -> tuple[type[Exception], ...]:
    import cursor_sdk as sdk
    import httpx

    return sdk.CursorAgentError, httpx.HTTPError


def network_error() -> tuple[type[Exception], ...]:
    """What the SDK raises when its bridge cannot be talked to."""
    import cursor_sdk as sdk
    import httpx

    return sdk.NetworkError, httpx.HTTPError


def fault(failure: Exception) -> GatewayError:
    return fault_from_sdk(
        str(getattr(failure, "message", failure)),
        code=getattr(failure, "code", None),
        sdk_code=getattr(failure, "proto_error_code", None),
        retry_after=getattr(failure, "retry_after", None),
    )


def tool_answer(result: ToolResult, extra: tuple[Text, ...] = ()) -> ToolAnswer:
    """A client's result as MCP content. What the user said beside it follows, marked as such."""
    content: list[dict[str, Any]] = []
    for part in result.content:
        match part:
            case Text(text=text):
                content.append({"type": "text", "text": text})
            case Image():
                content.append(_image(part))
    content += [{"type": "text", "text": f"The user says: {said.text}"} for said in extra]
    return {"content": content or [{"type": "text", "text": ""}], "isError": result.is_error}


def _image(image: Image) -> dict[str, Any]:
    import base64

    return {"type": "image", "data": base64.b64encode(image.data).decode(), "mimeType": image.mime_type}


def refusal(reason: str) -> ToolAnswer:
    return {"content": [{"type": "text", "text": reason}], "isError": True}


def model_infos(models: Any) -> list[ModelInfo]:
    """Each model with its parameters, and with the variants that may be asked for."""
    found: list[ModelInfo] = []
    for model in models:
        parameters = tuple((row.id, tuple(value.value for value in row.values)) for row in model.parameters)
        variants = tuple(
            ModelVariant(
                tuple((row.id, row.value) for row in variant.params),
                max_mode=getattr(variant, "is_max_mode", False) is True,
                default=variant.is_default is True,
                name=variant.display_name or "",
            )
            for variant in model.variants
        )
        thinks = any(name in REASONING_PARAMETERS for name, _ in parameters)
        name = model.display_name or model.id
        aliases = tuple(getattr(model, "aliases", None) or ())
        found.append(ModelInfo(model.id, name, aliases, thinks, parameters=parameters, variants=variants))
    return found
