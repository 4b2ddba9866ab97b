"""``python -m practice_gpus trace FILE …``: what costs most in a profiler trace or a memory snapshot, and what to change first.

FILE is what torch.profiler's export_chrome_trace() wrote (.json, or packed by gzip, xz, bz2 or zstd), one file for each rank,
or a .tar archive of them; or what torch.cuda.memory._dump_snapshot() wrote. The exit status is 0, or 2 for what can't be read.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from practice_gpus.traces import snapshots
from practice_gpus.traces.chrome import read_parts
from practice_gpus.traces.files import contents, document
from practice_gpus.traces.verdict import Verdict, verdict


def main(arguments: list[str]) -> int:
    """Read the files, print the verdict, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m practice_gpus trace",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", nargs="+", help="a trace, the traces of several ranks, or a memory snapshot"
    )
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object instead of sentences"
    )
    window = ("BEGIN", "END")
    parser.add_argument(
        "--window", nargs=2, type=float, metavar=window, help="in µs from the first GPU event"
    )
    args = parser.parse_args(arguments)
    if not all(args.file):
        parser.error("a name of a file is empty")
    try:
        found = judge([Path(name) for name in args.file], args.window and tuple(args.window))
    except (ValueError, OSError) as error:
        parser.error(f"{error}")
    except (TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        parser.error(f"{args.file[0]} isn't as PyTorch writes it ({type(error).__name__}: {error})")
    print(json.dumps(found.as_dict(), indent=1) if args.json else found)
    return 0


def judge(paths: list[Path], window: Any = None) -> Verdict | snapshots.Memory:
    """Return the verdict on the traces at `paths`, or what the memory snapshot there says; ValueError, one sentence."""
    files = [part for path in paths for part in contents(path)]
    name, data = files[0]
    if data.startswith(snapshots.MARKS):
        return snapshots.memory(snapshots.load(data, name))
    documents = [document(raw, part) for part, raw in files]
    if snapshots.is_snapshot(documents[0]):
        return snapshots.memory(documents[0])
    return verdict(read_parts(documents, paths[0].name, window))
