"""``python -m practice_gpus [-n N] [--memory M] [--steps S] script.py …``: a program on practice GPUs, and a report on it.

``-m module`` instead of a script runs a module, such as ``-m torch.distributed.run``; processes below it have practice
GPUs, too. The report goes to the standard error, the program's own output stays as it is. The exit status is 0, 1 if the
program failed, 2 if ``--strict`` was given and there are findings, 130 after an interrupt.

``python -m practice_gpus kernel my.cu 'transpose<32>' --grid 32,32 …`` compiles and runs one kernel: see ``kernel --help``.
``python -m practice_gpus trace FILE`` says what costs most in a profiler trace or a memory snapshot, and what to change first.
``python -m practice_gpus verify`` compares the GPUs that are there with what practice GPUs print; ``calibrate`` measures for
ten seconds what this machine's CPU takes for an operator, and forecasts use it from then on.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from practice_gpus import __version__
from practice_gpus.settings import can_be_written


def options() -> Any:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m practice_gpus", description=__doc__)
    parser.add_argument("--version", action="version", version=f"practice_gpus {__version__}")
    parser.add_argument("-n", type=int, default=1, help="number of GPUs")
    parser.add_argument("--memory", help="memory of each; without it the card's, or 16 GiB")
    parser.add_argument("--card", help="the card they stand for: forecast a training step on it")
    parser.add_argument("--steps", type=int, help="end the program after so many training steps")
    parser.add_argument(
        "--shapes", action="store_true", help="compute nothing; numbers that are read are 1"
    )
    parser.add_argument("--json", metavar="FILE", help="write the report there, too")
    parser.add_argument("--html", metavar="FILE", help="write it as a page to keep or print")
    parser.add_argument("--before", metavar="FILE", help="a --json of before, for the page")
    parser.add_argument("--strict", action="store_true", help="exit with 2 if there are findings")
    parser.add_argument("--quiet", action="store_true", help="print no report")
    parser.add_argument("--asynchronous", action="store_true", help="calls return before the work")
    parser.add_argument("-m", action="store_true", dest="module", help="a module, not a script")
    parser.add_argument("program", help="the script, or the module")
    more = parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    more.required = False  # else a missing program is said to be two arguments
    args = parser.parse_args()
    try:
        check(args)
    except (ValueError, OSError) as error:
        parser.error(f"{error}")
    return args


def check(args: Any) -> None:
    """Raise ValueError for what would fail only after the program ran, or would overwrite what is no report."""
    for name in ("--memory", "--card", "--json", "--html", "--before", "program"):
        if getattr(args, name.strip("-")) == "":
            raise ValueError(f"{name} is empty")
    if args.n < 0 or args.steps is not None and args.steps < 1:
        least = f"-n is {args.n}" if args.n < 0 else f"--steps is {args.steps}"
        raise ValueError(f"{least}; it takes a number above 0")
    for name, is_report in (("json", is_json_report), ("html", is_page)):
        path = getattr(args, name) and Path(getattr(args, name))
        if not path:
            continue
        if not can_be_written(path):
            raise ValueError(f"--{name} is {path}; it takes a file in a folder that can be written")
        if os.path.lexists(path) and not (path.is_file() and is_report(path)):
            raise ValueError(f"--{name} is {path}, which is there and no report: name a new file")
    if args.json and args.html and Path(args.json).absolute() == Path(args.html).absolute():
        raise ValueError(f"--json and --html are both {args.json}: name two files")
    if args.before and not os.path.isfile(args.before):
        raise ValueError(f"--before is {args.before}, and there is no such file")
    if args.before:
        from practice_gpus.reports import page

        page.earlier(args.before)
    if args.before and not args.html:
        raise ValueError("--before is drawn in the page: name one with --html")


def is_json_report(path: Path) -> bool:
    """Whether ``--json`` wrote this file."""
    try:
        return {"program", "outcome", "findings"} <= json.loads(path.read_bytes()).keys()
    except (ValueError, AttributeError, RecursionError):
        return False


def is_page(path: Path) -> bool:
    """Whether ``--html`` wrote this file."""
    from practice_gpus.reports import page

    return page.MARK.encode() in path.read_bytes()[:4096]


def main() -> Any:
    """Run the program, print the report, and return the exit status."""
    if sys.argv[1:2] == ["trace"]:  # it needs no PyTorch, which takes seconds to import
        from practice_gpus.traces import command

        return command.main(sys.argv[2:])
    from practice_gpus import calibrate, verify
    from practice_gpus.reports import report

    alone = {"verify": verify.main, "calibrate": calibrate.main}
    if sys.argv[1:2] and sys.argv[1] in alone:
        if sys.argv[2:]:
            print(f"python -m practice_gpus {sys.argv[1]}: it takes no arguments", file=sys.stderr)
            return 2
        return alone[sys.argv[1]]()
    if sys.argv[1:2] == ["kernel"]:
        from .reports import kernel_command

        return kernel_command.main(sys.argv[2:])
    args = options()
    args.card = args.card or ("T4" if args.html else None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    names = ("n", "memory", "asynchronous", "steps", "module", "shapes", "card")
    settings = {name: getattr(args, name) for name in names}
    if not args.module and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]  # it is there for ``-m practice_gpus``; a script has its own folder
    try:
        result = report(args.program, *args.arguments, **settings)
    except (FileNotFoundError, TypeError, ValueError) as error:
        print(f"python -m practice_gpus: {error}", file=sys.stderr)
        return 1
    if result is None:
        return 0
    sys.stdout.flush()
    if not args.quiet:
        print(result, file=sys.stderr)
    if args.json:
        result.save(args.json)
    if args.html:
        print(f"page: {result.page(args.html, args.before)}", file=sys.stderr)
    return result.status(args.strict)


if __name__ == "__main__":
    sys.exit(main())
