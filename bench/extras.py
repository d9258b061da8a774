"""What a route needs beside the wheel (`caretway[NAME]`): installed into the bench's own venv when first asked for."""

import importlib
import importlib.util
import subprocess
import sys
from typing import Final

_MODULES: Final = {"sdk": "cursor_sdk", "mcp": "mcp"}
_PATIENCE_S: Final = 900


def why_missing(extra: str) -> str:
    """Empty: it is here, now if not before."""
    if importlib.util.find_spec(_MODULES[extra]) is not None:
        return ""
    print(f"installing caretway[{extra}] ...", end=" ", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"caretway[{extra}]"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        return str(failure)
    importlib.invalidate_caches()
    if done.returncode or importlib.util.find_spec(_MODULES[extra]) is None:
        return (done.stderr or done.stdout).strip()[-300:]
    return ""
