from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BidiRequestId(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class BidiAppendRequest(_message.Message):
    __slots__ = ("data", "request_id", "append_seqno", "data_binary")
    DATA_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    APPEND_SEQNO_FIELD_NUMBER: _ClassVar[int]
    DATA_BINARY_FIELD_NUMBER: _ClassVar[int]
    data: str
    request_id: BidiRequestId
    append_seqno: int
    data_binary: bytes
    def __init__(self, data: _Optional[str] = ..., request_id: _Optional[_Union[BidiRequestId, _Mapping]] = ..., append_seqno: _Optional[int] = ..., data_binary: _Optional[bytes] = ...) -> None: ...

class BidiAppendResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BidiPollRequest(_message.Message):
    __slots__ = ("request_id", "start_request")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    START_REQUEST_FIELD_NUMBER: _ClassVar[int]
    request_id: BidiRequestId
    start_request: bool
    def __init__(self, request_id: _Optional[_Union[BidiRequestId, _Mapping]] = ..., start_request: bool = ...) -> None: ...

class BidiPollResponse(_message.Message):
    __slots__ = ("seqno", "data", "eof")
    SEQNO_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EOF_FIELD_NUMBER: _ClassVar[int]
    seqno: int
    data: str
    eof: bool
    def __init__(self, seqno: _Optional[int] = ..., data: _Optional[str] = ..., eof: bool = ...) -> None: ...

class CustomErrorDetails(_message.Message):
    __slots__ = ("title", "detail", "is_retryable", "show_request_id", "should_show_immediate_error", "additional_info")
    class AdditionalInfoEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    IS_RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    SHOW_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SHOULD_SHOW_IMMEDIATE_ERROR_FIELD_NUMBER: _ClassVar[int]
    ADDITIONAL_INFO_FIELD_NUMBER: _ClassVar[int]
    title: str
    detail: str
    is_retryable: bool
    show_request_id: bool
    should_show_immediate_error: bool
    additional_info: _containers.ScalarMap[str, str]
    def __init__(self, title: _Optional[str] = ..., detail: _Optional[str] = ..., is_retryable: bool = ..., show_request_id: bool = ..., should_show_immediate_error: bool = ..., additional_info: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ErrorDetails(_message.Message):
    __slots__ = ("error", "details", "is_expected")
    class Error(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ERROR_UNSPECIFIED: _ClassVar[ErrorDetails.Error]
        ERROR_BAD_API_KEY: _ClassVar[ErrorDetails.Error]
        ERROR_NOT_LOGGED_IN: _ClassVar[ErrorDetails.Error]
        ERROR_INVALID_AUTH_ID: _ClassVar[ErrorDetails.Error]
        ERROR_NOT_HIGH_ENOUGH_PERMISSIONS: _ClassVar[ErrorDetails.Error]
        ERROR_BAD_MODEL_NAME: _ClassVar[ErrorDetails.Error]
        ERROR_USER_NOT_FOUND: _ClassVar[ErrorDetails.Error]
        ERROR_FREE_USER_RATE_LIMIT_EXCEEDED: _ClassVar[ErrorDetails.Error]
        ERROR_PRO_USER_RATE_LIMIT_EXCEEDED: _ClassVar[ErrorDetails.Error]
        ERROR_FREE_USER_USAGE_LIMIT: _ClassVar[ErrorDetails.Error]
        ERROR_PRO_USER_USAGE_LIMIT: _ClassVar[ErrorDetails.Error]
        ERROR_AUTH_TOKEN_NOT_FOUND: _ClassVar[ErrorDetails.Error]
        ERROR_AUTH_TOKEN_EXPIRED: _ClassVar[ErrorDetails.Error]
        ERROR_OPENAI: _ClassVar[ErrorDetails.Error]
        ERROR_OPENAI_RATE_LIMIT_EXCEEDED: _ClassVar[ErrorDetails.Error]
        ERROR_AGENT_REQUIRES_LOGIN: _ClassVar[ErrorDetails.Error]
        ERROR_MAX_TOKENS: _ClassVar[ErrorDetails.Error]
        ERROR_USER_ABORTED_REQUEST: _ClassVar[ErrorDetails.Error]
        ERROR_GENERIC_RATE_LIMIT_EXCEEDED: _ClassVar[ErrorDetails.Error]
        ERROR_PRO_USER_ONLY: _ClassVar[ErrorDetails.Error]
        ERROR_TIMEOUT: _ClassVar[ErrorDetails.Error]
        ERROR_CUSTOM_MESSAGE: _ClassVar[ErrorDetails.Error]
        ERROR_OUTDATED_CLIENT: _ClassVar[ErrorDetails.Error]
        ERROR_CLAUDE_IMAGE_TOO_LARGE: _ClassVar[ErrorDetails.Error]
        ERROR_API_KEY_RATE_LIMIT: _ClassVar[ErrorDetails.Error]
        ERROR_DEBOUNCED: _ClassVar[ErrorDetails.Error]
        ERROR_BAD_REQUEST: _ClassVar[ErrorDetails.Error]
        ERROR_UNAUTHORIZED: _ClassVar[ErrorDetails.Error]
        ERROR_NOT_FOUND: _ClassVar[ErrorDetails.Error]
        ERROR_DEPRECATED: _ClassVar[ErrorDetails.Error]
        ERROR_RESOURCE_EXHAUSTED: _ClassVar[ErrorDetails.Error]
        ERROR_BAD_USER_API_KEY: _ClassVar[ErrorDetails.Error]
        ERROR_CONVERSATION_TOO_LONG: _ClassVar[ErrorDetails.Error]
        ERROR_USAGE_PRICING_REQUIRED: _ClassVar[ErrorDetails.Error]
        ERROR_USAGE_PRICING_REQUIRED_CHANGEABLE: _ClassVar[ErrorDetails.Error]
        ERROR_RATE_LIMITED: _ClassVar[ErrorDetails.Error]
        ERROR_RATE_LIMITED_CHANGEABLE: _ClassVar[ErrorDetails.Error]
        ERROR_CUSTOM: _ClassVar[ErrorDetails.Error]
        ERROR_HOOKS_BLOCKED: _ClassVar[ErrorDetails.Error]
        ERROR_SUSPICIOUS_USAGE_BLOCKED: _ClassVar[ErrorDetails.Error]
        ERROR_NETWORK_ERROR: _ClassVar[ErrorDetails.Error]
        ERROR_PROVIDER_ERROR: _ClassVar[ErrorDetails.Error]
        ERROR_MODEL_BLOCKED: _ClassVar[ErrorDetails.Error]
        ERROR_INTERNAL: _ClassVar[ErrorDetails.Error]
        ERROR_MAX_MODE_REQUIRED: _ClassVar[ErrorDetails.Error]
        ERROR_MODEL_NO_LONGER_SUPPORTED: _ClassVar[ErrorDetails.Error]
        ERROR_PRICING_WARNING: _ClassVar[ErrorDetails.Error]
        ERROR_SLOW_POOL: _ClassVar[ErrorDetails.Error]
        ERROR_UNSUPPORTED_REGION: _ClassVar[ErrorDetails.Error]
        ERROR_ACCOUNT_CLOSED: _ClassVar[ErrorDetails.Error]
    ERROR_UNSPECIFIED: ErrorDetails.Error
    ERROR_BAD_API_KEY: ErrorDetails.Error
    ERROR_NOT_LOGGED_IN: ErrorDetails.Error
    ERROR_INVALID_AUTH_ID: ErrorDetails.Error
    ERROR_NOT_HIGH_ENOUGH_PERMISSIONS: ErrorDetails.Error
    ERROR_BAD_MODEL_NAME: ErrorDetails.Error
    ERROR_USER_NOT_FOUND: ErrorDetails.Error
    ERROR_FREE_USER_RATE_LIMIT_EXCEEDED: ErrorDetails.Error
    ERROR_PRO_USER_RATE_LIMIT_EXCEEDED: ErrorDetails.Error
    ERROR_FREE_USER_USAGE_LIMIT: ErrorDetails.Error
    ERROR_PRO_USER_USAGE_LIMIT: ErrorDetails.Error
    ERROR_AUTH_TOKEN_NOT_FOUND: ErrorDetails.Error
    ERROR_AUTH_TOKEN_EXPIRED: ErrorDetails.Error
    ERROR_OPENAI: ErrorDetails.Error
    ERROR_OPENAI_RATE_LIMIT_EXCEEDED: ErrorDetails.Error
    ERROR_AGENT_REQUIRES_LOGIN: ErrorDetails.Error
    ERROR_MAX_TOKENS: ErrorDetails.Error
    ERROR_USER_ABORTED_REQUEST: ErrorDetails.Error
    ERROR_GENERIC_RATE_LIMIT_EXCEEDED: ErrorDetails.Error
    ERROR_PRO_USER_ONLY: ErrorDetails.Error
    ERROR_TIMEOUT: ErrorDetails.Error
    ERROR_CUSTOM_MESSAGE: ErrorDetails.Error
    ERROR_OUTDATED_CLIENT: ErrorDetails.Error
    ERROR_CLAUDE_IMAGE_TOO_LARGE: ErrorDetails.Error
    ERROR_API_KEY_RATE_LIMIT: ErrorDetails.Error
    ERROR_DEBOUNCED: ErrorDetails.Error
    ERROR_BAD_REQUEST: ErrorDetails.Error
    ERROR_UNAUTHORIZED: ErrorDetails.Error
    ERROR_NOT_FOUND: ErrorDetails.Error
    ERROR_DEPRECATED: ErrorDetails.Error
    ERROR_RESOURCE_EXHAUSTED: ErrorDetails.Error
    ERROR_BAD_USER_API_KEY: ErrorDetails.Error
    ERROR_CONVERSATION_TOO_LONG: ErrorDetails.Error
    ERROR_USAGE_PRICING_REQUIRED: ErrorDetails.Error
    ERROR_USAGE_PRICING_REQUIRED_CHANGEABLE: ErrorDetails.Error
    ERROR_RATE_LIMITED: ErrorDetails.Error
    ERROR_RATE_LIMITED_CHANGEABLE: ErrorDetails.Error
    ERROR_CUSTOM: ErrorDetails.Error
    ERROR_HOOKS_BLOCKED: ErrorDetails.Error
    ERROR_SUSPICIOUS_USAGE_BLOCKED: ErrorDetails.Error
    ERROR_NETWORK_ERROR: ErrorDetails.Error
    ERROR_PROVIDER_ERROR: ErrorDetails.Error
    ERROR_MODEL_BLOCKED: ErrorDetails.Error
    ERROR_INTERNAL: ErrorDetails.Error
    ERROR_MAX_MODE_REQUIRED: ErrorDetails.Error
    ERROR_MODEL_NO_LONGER_SUPPORTED: ErrorDetails.Error
    ERROR_PRICING_WARNING: ErrorDetails.Error
    ERROR_SLOW_POOL: ErrorDetails.Error
    ERROR_UNSUPPORTED_REGION: ErrorDetails.Error
    ERROR_ACCOUNT_CLOSED: ErrorDetails.Error
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    IS_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    error: ErrorDetails.Error
    details: CustomErrorDetails
    is_expected: bool
    def __init__(self, error: _Optional[_Union[ErrorDetails.Error, str]] = ..., details: _Optional[_Union[CustomErrorDetails, _Mapping]] = ..., is_expected: bool = ...) -> None: ...

class GetServerConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerConfigResponse(_message.Message):
    __slots__ = ("http2_config", "agent_url_config")
    class Http2Config(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HTTP2_CONFIG_UNSPECIFIED: _ClassVar[GetServerConfigResponse.Http2Config]
        HTTP2_CONFIG_FORCE_ALL_DISABLED: _ClassVar[GetServerConfigResponse.Http2Config]
        HTTP2_CONFIG_FORCE_ALL_ENABLED: _ClassVar[GetServerConfigResponse.Http2Config]
        HTTP2_CONFIG_FORCE_BIDI_DISABLED: _ClassVar[GetServerConfigResponse.Http2Config]
        HTTP2_CONFIG_FORCE_BIDI_ENABLED: _ClassVar[GetServerConfigResponse.Http2Config]
    HTTP2_CONFIG_UNSPECIFIED: GetServerConfigResponse.Http2Config
    HTTP2_CONFIG_FORCE_ALL_DISABLED: GetServerConfigResponse.Http2Config
    HTTP2_CONFIG_FORCE_ALL_ENABLED: GetServerConfigResponse.Http2Config
    HTTP2_CONFIG_FORCE_BIDI_DISABLED: GetServerConfigResponse.Http2Config
    HTTP2_CONFIG_FORCE_BIDI_ENABLED: GetServerConfigResponse.Http2Config
    HTTP2_CONFIG_FIELD_NUMBER: _ClassVar[int]
    AGENT_URL_CONFIG_FIELD_NUMBER: _ClassVar[int]
    http2_config: GetServerConfigResponse.Http2Config
    agent_url_config: AgentUrlConfig
    def __init__(self, http2_config: _Optional[_Union[GetServerConfigResponse.Http2Config, str]] = ..., agent_url_config: _Optional[_Union[AgentUrlConfig, _Mapping]] = ...) -> None: ...

class AgentUrlConfig(_message.Message):
    __slots__ = ("agent_url", "agentn_url", "local_loop_inference_url")
    AGENT_URL_FIELD_NUMBER: _ClassVar[int]
    AGENTN_URL_FIELD_NUMBER: _ClassVar[int]
    LOCAL_LOOP_INFERENCE_URL_FIELD_NUMBER: _ClassVar[int]
    agent_url: str
    agentn_url: str
    local_loop_inference_url: str
    def __init__(self, agent_url: _Optional[str] = ..., agentn_url: _Optional[str] = ..., local_loop_inference_url: _Optional[str] = ...) -> None: ...

class GetUserPrivacyModeRequest(_message.Message):
    __slots__ = ("inferred_privacy_mode",)
    INFERRED_PRIVACY_MODE_FIELD_NUMBER: _ClassVar[int]
    inferred_privacy_mode: int
    def __init__(self, inferred_privacy_mode: _Optional[int] = ...) -> None: ...

class GetUserPrivacyModeResponse(_message.Message):
    __slots__ = ("privacy_mode",)
    PRIVACY_MODE_FIELD_NUMBER: _ClassVar[int]
    privacy_mode: int
    def __init__(self, privacy_mode: _Optional[int] = ...) -> None: ...

class StreamChatRequest(_message.Message):
    __slots__ = ("messages", "instructions", "project_path", "model", "request_id", "conversation_id")
    class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROLE_UNSPECIFIED: _ClassVar[StreamChatRequest.Role]
        ROLE_USER: _ClassVar[StreamChatRequest.Role]
        ROLE_ASSISTANT: _ClassVar[StreamChatRequest.Role]
        ROLE_SYSTEM: _ClassVar[StreamChatRequest.Role]
    ROLE_UNSPECIFIED: StreamChatRequest.Role
    ROLE_USER: StreamChatRequest.Role
    ROLE_ASSISTANT: StreamChatRequest.Role
    ROLE_SYSTEM: StreamChatRequest.Role
    class Message(_message.Message):
        __slots__ = ("content", "role", "message_id")
        CONTENT_FIELD_NUMBER: _ClassVar[int]
        ROLE_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
        content: str
        role: StreamChatRequest.Role
        message_id: str
        def __init__(self, content: _Optional[str] = ..., role: _Optional[_Union[StreamChatRequest.Role, str]] = ..., message_id: _Optional[str] = ...) -> None: ...
    class Instructions(_message.Message):
        __slots__ = ("instruction",)
        INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
        instruction: str
        def __init__(self, instruction: _Optional[str] = ...) -> None: ...
    class Model(_message.Message):
        __slots__ = ("name",)
        NAME_FIELD_NUMBER: _ClassVar[int]
        name: str
        def __init__(self, name: _Optional[str] = ...) -> None: ...
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    PROJECT_PATH_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_ID_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[StreamChatRequest.Message]
    instructions: StreamChatRequest.Instructions
    project_path: str
    model: StreamChatRequest.Model
    request_id: str
    conversation_id: str
    def __init__(self, messages: _Optional[_Iterable[_Union[StreamChatRequest.Message, _Mapping]]] = ..., instructions: _Optional[_Union[StreamChatRequest.Instructions, _Mapping]] = ..., project_path: _Optional[str] = ..., model: _Optional[_Union[StreamChatRequest.Model, _Mapping]] = ..., request_id: _Optional[str] = ..., conversation_id: _Optional[str] = ...) -> None: ...

class StreamChatResponse(_message.Message):
    __slots__ = ("msg",)
    MSG_FIELD_NUMBER: _ClassVar[int]
    msg: str
    def __init__(self, msg: _Optional[str] = ...) -> None: ...

class AvailableModelsRequest(_message.Message):
    __slots__ = ("use_model_parameters", "do_not_use_markdown")
    USE_MODEL_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    DO_NOT_USE_MARKDOWN_FIELD_NUMBER: _ClassVar[int]
    use_model_parameters: bool
    do_not_use_markdown: bool
    def __init__(self, use_model_parameters: bool = ..., do_not_use_markdown: bool = ...) -> None: ...

class AvailableModelsResponse(_message.Message):
    __slots__ = ("model_names", "models")
    MODEL_NAMES_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    model_names: _containers.RepeatedScalarFieldContainer[str]
    models: _containers.RepeatedCompositeFieldContainer[AvailableModel]
    def __init__(self, model_names: _Optional[_Iterable[str]] = ..., models: _Optional[_Iterable[_Union[AvailableModel, _Mapping]]] = ...) -> None: ...

class AvailableModel(_message.Message):
    __slots__ = ("name", "supports_thinking", "supports_images", "supports_max_mode", "context_token_limit", "context_token_limit_for_max_mode", "client_display_name", "server_model_name", "supports_non_max_mode", "variants")
    class Parameter(_message.Message):
        __slots__ = ("id", "value")
        ID_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        id: str
        value: str
        def __init__(self, id: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class Variant(_message.Message):
        __slots__ = ("parameter_values", "display_name", "is_max_mode", "is_default_max_config", "is_default_non_max_config", "variant_string_representation", "legacy_slug")
        PARAMETER_VALUES_FIELD_NUMBER: _ClassVar[int]
        DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
        IS_MAX_MODE_FIELD_NUMBER: _ClassVar[int]
        IS_DEFAULT_MAX_CONFIG_FIELD_NUMBER: _ClassVar[int]
        IS_DEFAULT_NON_MAX_CONFIG_FIELD_NUMBER: _ClassVar[int]
        VARIANT_STRING_REPRESENTATION_FIELD_NUMBER: _ClassVar[int]
        LEGACY_SLUG_FIELD_NUMBER: _ClassVar[int]
        parameter_values: _containers.RepeatedCompositeFieldContainer[AvailableModel.Parameter]
        display_name: str
        is_max_mode: bool
        is_default_max_config: bool
        is_default_non_max_config: bool
        variant_string_representation: str
        legacy_slug: str
        def __init__(self, parameter_values: _Optional[_Iterable[_Union[AvailableModel.Parameter, _Mapping]]] = ..., display_name: _Optional[str] = ..., is_max_mode: bool = ..., is_default_max_config: bool = ..., is_default_non_max_config: bool = ..., variant_string_representation: _Optional[str] = ..., legacy_slug: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_THINKING_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_IMAGES_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_MAX_MODE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKEN_LIMIT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKEN_LIMIT_FOR_MAX_MODE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    SERVER_MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_NON_MAX_MODE_FIELD_NUMBER: _ClassVar[int]
    VARIANTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    supports_thinking: bool
    supports_images: bool
    supports_max_mode: bool
    context_token_limit: int
    context_token_limit_for_max_mode: int
    client_display_name: str
    server_model_name: str
    supports_non_max_mode: bool
    variants: _containers.RepeatedCompositeFieldContainer[AvailableModel.Variant]
    def __init__(self, name: _Optional[str] = ..., supports_thinking: bool = ..., supports_images: bool = ..., supports_max_mode: bool = ..., context_token_limit: _Optional[int] = ..., context_token_limit_for_max_mode: _Optional[int] = ..., client_display_name: _Optional[str] = ..., server_model_name: _Optional[str] = ..., supports_non_max_mode: bool = ..., variants: _Optional[_Iterable[_Union[AvailableModel.Variant, _Mapping]]] = ...) -> None: ...
