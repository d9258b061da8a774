"""Reading values out of parsed JSON, with an error that names the field as the caller spelled it.

For every dialect's decoder. `null` counts as absent wherever a field is optional: clients send both. Knows no field.
"""

from collections.abc import Mapping
from typing import Final

from ..core.errors import ErrorKind, GatewayError, bad_request

_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def kind_of(value: object) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def wrong_type(param: str, expected: str, value: object) -> GatewayError:
    return bad_request(
        f"Invalid type for '{param}': expected {expected}, got {kind_of(value)}.", param=param, code="invalid_type"
    )


def invalid_value(param: str, message: str) -> GatewayError:
    return bad_request(f"Invalid value for '{param}': {message}", param=param, code="invalid_value")


def missing(param: str, *, code: str = "missing_required_parameter") -> GatewayError:
    return bad_request(f"Missing required parameter: '{param}'.", param=param, code=code)


def unsupported(param: str, message: str, *, code: str | None = None, hint: str = "") -> GatewayError:
    return GatewayError(ErrorKind.UNSUPPORTED, message, hint=hint, param=param, code=code)


def an_object(value: object, param: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise wrong_type(param, "an object", value)
    return value


def an_array(value: object, param: str) -> list[object]:
    if not isinstance(value, list):
        raise wrong_type(param, "an array", value)
    return value


def a_string(value: object, param: str) -> str:
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    return value


def needed_string(holder: Mapping[str, object], key: str, prefix: str = "") -> str:
    """A string that must be there and say something."""
    param = f"{prefix}.{key}" if prefix else key
    value = holder.get(key)
    if value is None:
        raise missing(param)
    if not a_string(value, param).strip():
        raise invalid_value(param, "it must not be empty.")
    return str(value)


def optional_string(holder: Mapping[str, object], key: str, prefix: str = "") -> str | None:
    value = holder.get(key)
    return None if value is None else a_string(value, f"{prefix}.{key}" if prefix else key)


def optional_bool(holder: Mapping[str, object], key: str, prefix: str = "") -> bool | None:
    value = holder.get(key)
    if value is not None and not isinstance(value, bool):
        raise wrong_type(f"{prefix}.{key}" if prefix else key, "a boolean", value)
    return value
