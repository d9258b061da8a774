"""The `caretway` command: each file parses, calls and prints for one command; slow imports happen late."""
