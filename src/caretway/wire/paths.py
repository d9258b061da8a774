"""URL paths of Cursor's calls (Run, RunSSE, BidiAppend, model lists, usage, sign-in), and the content types of streams,
protobuf and JSON."""

from typing import Final

RUN: Final = "/agent.v1.AgentService/Run"
RUN_SSE: Final = "/agent.v1.AgentService/RunSSE"
BIDI_APPEND: Final = "/aiserver.v1.BidiService/BidiAppend"
STREAM_CHAT: Final = "/aiserver.v1.AiService/StreamChat"
NAME_AGENT: Final = "/agent.v1.AgentService/NameAgent"
USABLE_MODELS: Final = "/agent.v1.AgentService/GetUsableModels"
USABLE_MODELS_OLD: Final = "/aiserver.v1.AiService/GetUsableModels"
AVAILABLE_MODELS: Final = "/aiserver.v1.AiService/AvailableModels"
DEFAULT_MODEL: Final = "/agent.v1.AgentService/GetDefaultModelForCli"
SERVER_CONFIG: Final = "/aiserver.v1.ServerConfigService/GetServerConfig"
PRIVACY_MODE: Final = "/aiserver.v1.DashboardService/GetUserPrivacyMode"
TEAM_SETTINGS: Final = "/aiserver.v1.DashboardService/GetTeamAdminSettingsOrEmptyIfNotInTeam"
TEAM_REPOS: Final = "/aiserver.v1.DashboardService/GetTeamReposOrEmptyIfNotInTeam"
PERIOD_USAGE: Final = "/aiserver.v1.DashboardService/GetCurrentPeriodUsage"
EXCHANGE_KEY: Final = "/auth/exchange_user_api_key"
REFRESH: Final = "/auth/refresh"
POLL: Final = "/auth/poll"

STREAM_TYPE: Final = "application/connect+proto"
UNARY_TYPE: Final = "application/proto"
JSON_TYPE: Final = "application/json"
