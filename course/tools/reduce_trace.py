"""A torch.profiler trace, made small: what the timeline view, lesson 13 and the extracts of the course need of it."""

import argparse
import gzip
import json
import os
from pathlib import Path
from typing import Any

from course import files
from course.tools import WrongCall
from course.tools._arguments import file, new_file

HELP = "make a torch.profiler trace small: kernels, launches, long CPU spans, without names of people or hosts"
NOTES = ("device", "pytorch", "model", "batch", "note")
SOURCE = ("repository", "commit", "path", "licence")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `reduce_trace`."""
    parser.add_argument(
        "trace", type=file, help="from export_chrome_trace(): .json, .json.gz, or .tar.gz of ranks"
    )
    parser.add_argument(
        "--out", type=new_file, metavar="FILE.json.gz", help="default: beside the trace"
    )
    parser.add_argument(
        "--window",
        nargs=2,
        type=float,
        metavar=("BEGIN", "END"),
        help="in µs from the first GPU event (default: everything)",
    )
    for name in NOTES:
        parser.add_argument(f"--{name}", help="what the trace itself does not record")
    for name in SOURCE:
        parser.add_argument(f"--{name}", help="where the trace was published, if it was")


def run(args: argparse.Namespace) -> int:
    """Write the extract and say what is in it. Returns 0, or 2 with one sentence where it cannot be read."""
    from practice_gpus.traces import read

    about = {name: getattr(args, name) for name in NOTES if getattr(args, name)}
    source = {name: getattr(args, name) for name in SOURCE if getattr(args, name)}
    if source:
        about["source"] = {**source, "window": args.window}
    path = args.trace
    try:
        out = args.out or path.with_name(f"{path.name.split('.')[0]}.small.json.gz")
        if os.path.lexists(out):
            raise ValueError(f"{out} is there already; give another name with --out")
        trace = read(path, args.window and tuple(args.window), about)
        size = write(trace, out)
    except (ValueError, OSError) as error:
        told = f"{error}" if path.name in f"{error}" else f"{path.name}: {error}"
        raise WrongCall(told) from None
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        told = f"{path.name} is no trace of torch.profiler ({type(error).__name__}: {error})"
        raise WrongCall(told) from None
    counts = f"{len(trace.gpu):,} GPU events, {len(trace.cpu):,} CPU spans"
    print(f"{out}: {trace.device}, {trace.length / 1000:.3g} ms, {counts}, {size / 1000:.1f} KB")
    return 0


def write(trace: Any, out: Path) -> int:
    """Write `trace` to the new file `out` and return its size in bytes; the same trace gives the same bytes."""
    from practice_gpus.traces import encode

    text = json.dumps(encode(trace), separators=(",", ":"), ensure_ascii=False)
    files.write(out, gzip.compress(text.encode(), 9, mtime=0))
    return out.stat().st_size
