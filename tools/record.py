"""Measure this machine for the figures of the course; `measurements` reads the result."""

import sys

HELP = "measure this machine (GPU and CPU) into a file that the figures can draw"


def add_arguments(parser):
    """Add the options of `record`."""
    parser.add_argument(
        "--out",
        required=True,
        metavar="FILE.json",
        help="new, or unfinished and to be gone on with",
    )
    parser.add_argument(
        "--device", help='such as "cuda:1" (default: the best one); the CPU is always measured too'
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a minute or less, for a look; coarser, not to be shared",
    )


def run(args):
    """Measure, and say where the result is. Returns 0, 2 when wrongly called, 130 when stopped."""
    from measurements.recorder import record

    try:
        recording = record(args.out, args.device, args.quick)
    except KeyboardInterrupt:
        print(
            f"\nStopped. {args.out} keeps the finished parts, if any; the same command goes on from there.",
            file=sys.stderr,
        )
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        print(f"record: {error}", file=sys.stderr)
        return 2
    rows = sum(map(len, recording.sections.values()))
    size = recording.path.stat().st_size / 1000
    print(f"{args.out}: {rows} rows, {size:.0f} KB; {recording.label}")
    return 0
