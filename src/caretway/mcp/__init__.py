"""The user's MCP servers as tools for every model and client: offered beside the client's own tools, run in the
gateway."""
