"""Cursor's old chat call, `AiService/StreamChat`: one request, a stream of text. See README.md for its standing."""
