"""Figures for people: counts, money, times gone by, bars. Pure."""

from typing import Final

_UNITS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def compact(count: int) -> str:
    """`950`, `1.2k`, `34k`, `5.6M`."""
    for size, unit in _UNITS:
        if count >= size * 0.9995:
            value = count / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(count)


def dollars(cents: float) -> str:
    """`$12.40`; amounts below a cent have more digits, so that they do not look like zero."""
    value = cents / 100
    if 0 < value < 0.00005:
        return "<$0.0001"
    if 0 < value < 0.01:
        return f"${value:.4f}"
    return f"${value:,.2f}"


def ago(seconds: float) -> str:
    """`now`, `3 min ago`, `5 h ago`, `2 d ago`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return "now"


def bar(share: float, width: int) -> str:
    """A bar such as `####------` for a share from 0 to 1."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    if share > 0:
        filled = max(filled, 1)
    return "#" * filled + "-" * (width - filled)
