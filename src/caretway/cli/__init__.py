"""The `caretway` command. Thin: parse, call, print, exit code. One file per command; slow imports happen late."""
