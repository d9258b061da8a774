"""The chromium that is installed here, and how tests of the page ask for one."""

import os
import shutil
from importlib.resources import files
from typing import Any, Final, Protocol

from playwright.async_api import Page

CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE: Final = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def sandbox() -> list[str]:
    """Chromium has none for the superuser."""
    return ["--no-sandbox"] if os.geteuid() == 0 else []


class Opens(Protocol):
    """Opens the page in a context of its own. `refuses`: the Content-Security-Policy is to refuse something."""

    async def __call__(self, url: str, refuses: bool = False, **context: Any) -> Page: ...
