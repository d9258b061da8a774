"""Which client versions the simulated Cursor takes for shipped ones, by their form (`cli-2026.07.08-0c04a8a`,
`sdk-python-1.1.0`). Pure."""

import re
from typing import Final

_SHIPPED: Final = re.compile(r"cli-2026\.\d\d\.\d\d(-[0-9a-z]+)*|sdk-(python|typescript)-1\.\d+\.\d+")


def is_shipped(version: str) -> bool:
    return _SHIPPED.fullmatch(version) is not None
