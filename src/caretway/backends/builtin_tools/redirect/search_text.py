"""Search results out of a grep tool's text: `path:line:text`, matches grouped under their file, counts, plain paths,
context lines, truncation notes. Pure."""

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from ....cursor.wire.messages import pb

_NUMBER: Final = r"(\d{1,9})"
_MATCH: Final = re.compile(rf"(.+?):{_NUMBER}:(.*)")
_CONTEXT: Final = re.compile(rf"(.+?)-{_NUMBER}-(.*)")
_COUNT: Final = re.compile(rf"(.+):{_NUMBER}")
_ROW: Final = re.compile(rf"\s*(?:Line |L){_NUMBER}: ?(.*)|\s*{_NUMBER}[:|] ?(.*)")
"""A match under the name of its file."""
_HEADING: Final = re.compile(r"File: (.+)|(\S.*):")
_NOISE: Final = re.compile(
    r"--|(?:found|showing) \d+ .*|no (?:files|matches|results)(?: were)?(?: found)?\b.*|\(.*\)|---|```"
    r"|\[.*(?:truncated|omitted|limit).*\]|binary file .* matches",
    re.IGNORECASE,
)
_TRUNCATED: Final = re.compile(r"truncated|showing (?:only |first |the first )|results? limit|hidden\)", re.IGNORECASE)


class _Found(Struct):
    content: dict[str, list[pb.GrepContentMatch]] = field(default_factory=dict)
    paths: dict[str, None] = field(default_factory=dict)
    """Lines that belong to no match."""

    def add(self, file: str, number: str, text: str, *, context: bool = False) -> None:
        match = pb.GrepContentMatch(line_number=int(number), content=text, is_context_line=context)
        self.content.setdefault(file, []).append(match)


def files(text: str) -> pb.GrepUnionResult:
    """Every line a path."""
    paths = list(dict.fromkeys(line.strip() for line in _lines(text)))
    truncated = _is_truncated(text)
    return pb.GrepUnionResult(files=pb.GrepFilesResult(files=paths, total_files=len(paths), client_truncated=truncated))


def matches(text: str, mode: str, *, with_context: bool) -> pb.GrepUnionResult:
    """In the requested mode if the text has that format; a tool without modes prints its own."""
    if mode == "count" and (counts := _counts(text)) is not None:
        return pb.GrepUnionResult(count=counts)
    if mode == "files_with_matches" and not any(_MATCH.fullmatch(line) for line in _lines(text)):
        return files(text)
    output = _content(text, with_context=with_context)
    if mode == "files_with_matches":
        paths = list(output.content)
        return pb.GrepUnionResult(files=pb.GrepFilesResult(files=paths, total_files=len(paths)))
    if not output.content and output.paths:
        return files(text)
    lines = [match for several in output.content.values() for match in several]
    return pb.GrepUnionResult(
        content=pb.GrepContentResult(
            matches=[pb.GrepFileMatch(file=file, matches=several) for file, several in output.content.items()],
            total_lines=len(lines),
            total_matched_lines=sum(not match.is_context_line for match in lines),
            client_truncated=_is_truncated(text),
        )
    )


def _lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        bare = line.removesuffix("\r")
        if bare.strip() and not _NOISE.fullmatch(bare.strip()):
            yield bare


def _content(text: str, *, with_context: bool) -> _Found:
    output = _Found()
    heading = ""
    for line in _lines(text):
        row = _ROW.fullmatch(line) if heading else None
        if row:
            output.add(heading, row[1] or row[3], row[2] if row[1] else row[4])
        elif match := _MATCH.fullmatch(line):
            output.add(match[1], match[2], match[3])
        elif with_context and (context := _CONTEXT.fullmatch(line)):
            output.add(context[1], context[2], context[3], context=True)
        elif title := _HEADING.fullmatch(line):
            heading = title[1] or title[2]
        else:
            heading = line.strip()  # ripgrep prints the bare path above its matches
            output.paths[heading] = None
    return output


def _counts(text: str) -> pb.GrepCountResult | None:
    counts: list[pb.GrepFileCount] = []
    for line in _lines(text):
        match = _COUNT.fullmatch(line.strip())
        if match is None:
            return None
        counts.append(pb.GrepFileCount(file=match[1], count=int(match[2])))
    total = min(sum(entry.count for entry in counts), 2**31 - 1)
    return pb.GrepCountResult(
        counts=counts, total_files=len(counts), total_matches=total, client_truncated=_is_truncated(text)
    )


def _is_truncated(text: str) -> bool:
    """Clients report a cut in their last lines, or in the first."""
    edges = [*text[:300].split("\n")[:1], *text[-300:].split("\n")[-3:]]
    return any(_NOISE.fullmatch(line.strip()) and _TRUNCATED.search(line) for line in edges)
