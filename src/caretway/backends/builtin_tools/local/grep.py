"""grep and glob for Cursor: runs the search worker process, kills it at its time limit (ReDoS) or when cancelled, and
converts its outcome into a GrepResult.

File names have the official client's form: relative to the workspace with a leading `./`, under the workspace's path as
key.
"""

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from ....cursor.wire.messages import pb
from ....processes.child import Command
from ....processes.child_group import ChildGroup, run_once
from .confine import Workspace, shown
from .search import Job

log = logging.getLogger(__name__)

MODES: Final = ("content", "files_with_matches", "count")
MAX_RESULTS: Final = 5_000
MAX_FILES: Final = 100_000
MAX_TOTAL_BYTES: Final = 1 << 30
MAX_CONTEXT: Final = 100
MAX_ANSWER: Final = 64 * 2**20
"""Bytes of the worker's answer, which bounds its own results."""
START_S: Final = 5.0
"""Seconds beyond the search's own time limit before a worker is killed."""


def job_of(args: pb.GrepArgs, root: str, *, seconds: float, output_bytes: int, max_file_bytes: int) -> Job:
    around = args.context
    mode = args.output_mode or "content"
    return Job(
        root=root,
        path=args.path,
        pattern=args.pattern,
        mode=mode if args.pattern else "files_with_matches",  # without a pattern the glob tool needs only names
        seconds=seconds,
        output_bytes=output_bytes,
        max_file_bytes=max_file_bytes,
        max_results=MAX_RESULTS,
        max_files=MAX_FILES,
        max_total_bytes=MAX_TOTAL_BYTES,
        glob=args.glob,
        file_type=args.type,
        before=_lines(args.context_before or around),
        after=_lines(args.context_after or around),
        ignore_case=args.case_insensitive,
        multiline=args.multiline,
        limit=max(0, args.head_limit),
        offset=max(0, args.offset),
        newest_first=not args.sort_ascending if args.sort in ("modified", "mtime") else None,
    )


def _lines(count: int) -> int:
    return min(max(0, count), MAX_CONTEXT)


def result_of(args: pb.GrepArgs, job: Job, outcome: Mapping[str, Any]) -> pb.GrepResult:
    if "error" in outcome:
        return failed(outcome["error"])
    cut = outcome["truncated"]
    union = pb.GrepUnionResult()
    match job.mode:
        case "content":
            union.content.SetInParent()
            for file, lines in outcome["lines"]:
                match_ = union.content.matches.add(file=f"./{file}")
                for number, text, shortened, context in lines:
                    match_.matches.add(
                        line_number=number, content=text, content_truncated=shortened, is_context_line=context
                    )
            union.content.total_lines = outcome["total_lines"]
            union.content.total_matched_lines = outcome["total_matches"]
            union.content.client_truncated = cut
        case "count":
            union.count.SetInParent()
            for file, count in outcome["counts"]:
                union.count.counts.add(file=f"./{file}", count=count)
            union.count.total_files = outcome["total_files"]
            union.count.total_matches = outcome["total_matches"]
            union.count.client_truncated = cut
        case _:
            union.files.SetInParent()
            union.files.files.extend(f"./{file}" for file in outcome["files"])
            union.files.total_files = outcome["total_files"]
            union.files.client_truncated = cut
    success = pb.GrepSuccess(pattern=args.pattern, path=args.path, output_mode=job.mode)
    success.workspace_results[shown(job.root)].CopyFrom(union)
    return pb.GrepResult(success=success)


def failed(error: str) -> pb.GrepResult:
    return pb.GrepResult(error=pb.GrepError(error=error))


class Grep:
    def __init__(
        self,
        workspace: Workspace,
        environment: Mapping[str, str],
        *,
        timeout_s: float,
        output_bytes: int,
        max_file_bytes: int,
    ) -> None:
        self._workspace = workspace
        self._environment = environment
        self._timeout_s = timeout_s
        self._output_bytes = output_bytes
        self._max_file_bytes = max_file_bytes

    async def run(self, args: pb.GrepArgs) -> pb.GrepResult:
        if args.output_mode and args.output_mode not in MODES:
            return failed(f"unknown output mode {args.output_mode!r}; the modes are: {', '.join(MODES)}")
        job = job_of(
            args,
            self._workspace.root,
            seconds=self._timeout_s,
            output_bytes=self._output_bytes,
            max_file_bytes=self._max_file_bytes,
        )
        return result_of(args, job, await _searched(job, self._environment))


async def _searched(job: Job, environment: Mapping[str, str]) -> Mapping[str, Any]:
    command = Command((sys.executable, "-I", "-X", "utf8", "-m", f"{__package__}.search"), None, environment)
    data = json.dumps(asdict(job)).encode()
    try:
        done = await run_once(ChildGroup(), command, data=data, timeout=job.seconds + START_S, limit=MAX_ANSWER)
    except TimeoutError:
        return {"error": f"the search took longer than {job.seconds:g} seconds; simplify the pattern"}
    if done.code:
        log.error("search worker ended with %d: %s", done.code, done.stderr[-2000:])
        return {"error": "the search failed"}
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome
