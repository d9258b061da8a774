"""Edits of YAML files that are one list, item below item: items of ours are added at the end or taken out, and every
other byte stays. A file of another form is refused. Pure.
"""


class NotAList(ValueError):
    """The file is not a list with an item on each line that is not indented."""


def check(text: str) -> None:
    begun = False
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        plain = line.rstrip()
        if not plain or plain.lstrip().startswith("#") or plain == "---":
            continue
        if plain.startswith((" ", "\t")):
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
    if kept and not kept.endswith("\n"):
        kept += "\r\n" if "\r\n" in text else "\n"
    return kept + items


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
