"""The `caretway` command. Thin: parse, call, print, exit code. One file per command; what is slow is imported late."""
