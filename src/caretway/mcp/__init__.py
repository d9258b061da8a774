"""The user's MCP servers as tools for every model and client: offered in addition to the client's tools, run in the
gateway."""
