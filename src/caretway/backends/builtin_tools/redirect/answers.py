"""A client tool's outcome -> the typed result of the exec (shell, read, write, delete, ls, grep, glob, fetch): success,
not found, rejected or error. One function for each kind. Pure.

Nothing is looked up or retried: the model gets the client's result, in the type that it expects. The caller puts the
exec's id on the messages.
"""

from ....cursor.wire.messages import pb
from ..execs import shell_rejected
from . import listing_text, search_text
from .exec_intent import written_text
from .file_text import count_lines, plain_text, read_file_text
from .outcome import Outcome, sounds_failed

Reply = pb.ExecClientMessage


def _exit_code(outcome: Outcome) -> int:
    if outcome.exit_code is not None:
        return outcome.exit_code
    return 1 if outcome.failed else 0


def shell(args: pb.ShellArgs, outcome: Outcome) -> list[Reply]:
    result = pb.ShellResult()
    if outcome.refused:
        result.rejected.CopyFrom(shell_rejected(args, outcome.text))
    else:
        ended = result.failure if outcome.failed else result.success
        ended.command, ended.working_directory = args.command, args.working_directory
        ended.exit_code, ended.stdout = _exit_code(outcome), outcome.text
    return [Reply(shell_result=result)]


def shell_stream(args: pb.ShellArgs, outcome: Outcome) -> list[Reply]:
    if outcome.refused:
        return [Reply(shell_stream=pb.ShellStream(rejected=shell_rejected(args, outcome.text)))]
    events = [pb.ShellStream(start=pb.ShellStreamStart(command=args.command))]
    if outcome.text:
        events.append(pb.ShellStream(stdout=pb.ShellStreamStdout(data=outcome.text)))
    events.append(pb.ShellStream(exit=pb.ShellStreamExit(code=_exit_code(outcome), cwd=args.working_directory)))
    return [Reply(shell_stream=event) for event in events]


def _read(args: pb.ReadArgs, outcome: Outcome, *, ranged: bool) -> pb.ReadResult:
    path = args.path
    if outcome.refused:
        return pb.ReadResult(rejected=pb.ReadRejected(path=path, reason=outcome.text))
    failed = _failed(outcome, path)
    if failed.missing:
        return pb.ReadResult(file_not_found=pb.ReadFileNotFound(path=path))
    if failed.failed:
        return pb.ReadResult(error=pb.ReadError(path=path, error=outcome.text))
    if outcome.image is not None:
        return pb.ReadResult(
            success=pb.ReadSuccess(path=path, data=outcome.image, file_size=len(outcome.image), range_applied=False)
        )
    file = plain_text(outcome.text) if outcome.raw else read_file_text(outcome.text, path)
    return pb.ReadResult(
        success=pb.ReadSuccess(
            path=path,
            content=file.content,
            total_lines=file.total_lines,
            file_size=len(file.content.encode()),
            truncated=file.truncated and not ranged,
            range_applied=ranged,
        )
    )


def read(args: pb.ReadArgs, outcome: Outcome, *, ranged: bool = False) -> list[Reply]:
    return [Reply(read_result=_read(args, outcome, ranged=ranged))]


def redacted_read(args: pb.ReadArgs, outcome: Outcome, *, ranged: bool = False) -> list[Reply]:
    return [Reply(redacted_read_result=_read(args, outcome, ranged=ranged))]


def write(args: pb.WriteArgs, outcome: Outcome) -> list[Reply]:
    result = pb.WriteResult()
    text = written_text(args) or ""
    if outcome.refused:
        result.rejected.path, result.rejected.reason = args.path, outcome.text
    elif outcome.failed or sounds_failed(outcome.text):
        result.error.path, result.error.error = args.path, outcome.text
    else:
        result.success.path = args.path
        result.success.lines_created = count_lines(text)
        result.success.file_size = len(text.encode())
        if args.return_file_content_after_write:
            result.success.file_content_after_write = text
    return [Reply(write_result=result)]


def delete(args: pb.DeleteArgs, outcome: Outcome) -> list[Reply]:
    result = pb.DeleteResult()
    failed = _failed(outcome)
    if outcome.refused:
        result.rejected.path, result.rejected.reason = args.path, outcome.text
    elif failed.missing:
        result.file_not_found.path = args.path
    elif failed.failed:
        result.error.path, result.error.error = args.path, outcome.text
    else:
        result.success.path = result.success.deleted_file = args.path
    return [Reply(delete_result=result)]


def ls(args: pb.LsArgs, outcome: Outcome) -> list[Reply]:
    result = pb.LsResult()
    if outcome.refused:
        result.rejected.path, result.rejected.reason = args.path, outcome.text
    elif _failed(outcome, args.path).failed:
        result.error.path, result.error.error = args.path, outcome.text
    else:
        read_listing = listing_text.flat if outcome.raw else listing_text.tree
        result.success.directory_tree_root.CopyFrom(read_listing(outcome.text, args.path))
    return [Reply(ls_result=result)]


def grep(args: pb.GrepArgs, outcome: Outcome) -> list[Reply]:
    if outcome.failed or outcome.refused or sounds_failed(outcome.text, args.path or args.pattern):
        return [Reply(grep_result=pb.GrepResult(error=pb.GrepError(error=outcome.text)))]
    asked = args.output_mode or "content"
    with_context = max(args.context, args.context_before, args.context_after) > 0
    results = search_text.matches(outcome.text, asked, with_context=with_context)
    return [_grep_success(args, results)]


def glob(args: pb.GrepArgs, outcome: Outcome) -> list[Reply]:
    if outcome.failed or outcome.refused:
        return [Reply(grep_result=pb.GrepResult(error=pb.GrepError(error=outcome.text)))]
    return [_grep_success(args, search_text.files(outcome.text))]


_MODES = {"content": "content", "files": "files_with_matches", "count": "count"}


def _grep_success(args: pb.GrepArgs, results: pb.GrepUnionResult) -> Reply:
    success = pb.GrepSuccess(
        pattern=args.pattern, path=args.path, output_mode=_MODES[results.WhichOneof("result") or "content"]
    )
    success.workspace_results[args.path or "."].CopyFrom(results)
    return Reply(grep_result=pb.GrepResult(success=success))


def fetch(args: pb.FetchArgs, outcome: Outcome) -> list[Reply]:
    result = pb.FetchResult()
    if outcome.failed or outcome.refused or sounds_failed(outcome.text):
        result.error.url, result.error.error = args.url, outcome.text
    else:
        result.success.url, result.success.content = args.url, outcome.text
        result.success.status_code = 200  # a tool that fetched has had an OK, whichever it was
    return [Reply(fetch_result=result)]


def _failed(outcome: Outcome, path: str | None = None) -> Outcome:
    """The same outcome, marked as failed if its text says so."""
    if outcome.failed or outcome.image is not None or not sounds_failed(outcome.text, path):
        return outcome
    return Outcome(outcome.text, failed=True, raw=outcome.raw)
