"""Edits of YAML files that are one list, item below item: ours are added at the end or taken out, and every
other byte stays. A file of another form is refused. Pure.
"""

from typing import Final


class NotAList(ValueError):
    """The file is not a list with an item on each line that is not indented."""


_END: Final = "..."
"""Ends a document; only comments may follow it here."""


def check(text: str) -> None:
    begun = ended = False
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        plain = line.rstrip()
        if not plain or plain.lstrip().startswith("#") or (plain == "---" and not begun):
            continue
        if ended:
            raise NotAList(f"line {number} is after the end of the list")
        if plain == _END:
            ended = True
        elif plain.startswith((" ", "\t")):
            if not begun:
                raise NotAList(f"line {number} is indented, and ours would not be in the same list")
        elif not plain.startswith("- ") and plain != "-":
            raise NotAList(f"line {number} is not an item of a list")
        begun = True


def put(text: str, items: str, mark: str) -> str:
    """The text with our items at its end, instead of those that were there."""
    check(text)
    kept = remove(text, mark)
    if "\r\n" in text:
        items = items.replace("\n", "\r\n")
    lines = kept.splitlines(keepends=True)
    end = next((at for at, line in enumerate(lines) if line.rstrip() == _END), len(lines))
    before, after = "".join(lines[:end]), "".join(lines[end:])
    if before and not before.endswith("\n"):
        before += "\r\n" if "\r\n" in text else "\n"
    return before + items + after


def remove(text: str, mark: str) -> str:
    """The text without the items that begin with `mark`, in double quotes, single ones or none."""
    check(text)
    marks = {mark, mark.replace('"', "'"), mark.replace('"', "")}
    kept: list[str] = []
    ours = False
    for line in text.splitlines(keepends=True):
        if not line.startswith((" ", "\t")):  # an item, a comment or an empty line
            ours = any(line.startswith(begin) for begin in marks)
        if not ours:
            kept.append(line)
    return "".join(kept)
