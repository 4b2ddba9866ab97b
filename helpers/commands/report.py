"""One table that says where the course stands, from a real run on this machine."""

import json
import os
import statistics
import subprocess
import sys
import time

from helpers.commands import _imports, _notebooks, _strict
from helpers.commands._environment import ROOT

HELP = "for authors: run everything and print where the course stands, in figures"


def add_arguments(parser):
    """Add the options of `report`."""
    parser.add_argument("lessons", nargs="*", help="numbers (01), file names or paths; none: all")
    parser.add_argument(
        "--quick", action="store_true", help="leave out the browser and running each cell twice"
    )


def run(args):
    """Measure and print the tables; return 1 when a measure misses its bar."""
    try:
        paths = _notebooks.find(args.lessons)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    results = {}
    for path in paths:
        print(f"measuring {path.name} …", file=sys.stderr, flush=True)
        results[path] = dict(
            _notebooks.rhythm(_notebooks.read(path)),
            number=path.name[:2],
            **_strict.run_strict(path),
        )
        if results[path]["status"] != 0:
            print(results[path]["text"][-3000:], file=sys.stderr)
    rows = [*lesson_rows(list(results.values())), import_row(), loop_row()]
    if not args.quick:
        names = " or ".join(path.stem for path in paths) if args.lessons else ""
        rows += [
            pytest_row("each cell twice in a row", "tests/test_notebooks.py", ("twice", names)),
            pytest_row(
                "JupyterLab: Run All, each widget moved", "tests/test_browser.py", ("", names)
            ),
        ]
    print(lesson_table(results), machine(), measure_table(rows), torture_table(), sep="\n\n")
    return int(any(fine is False for *_, fine in rows))


def machine():
    """Return one line about where this was measured."""
    import torch

    return (
        f"Measured on {os.cpu_count()} cores, Python {sys.version.split()[0]}, torch {torch.__version__}, "
        f"{torch.cuda.device_count()} CUDA devices, {time.strftime('%Y-%m-%d')}."
    )


def markdown(head, rows):
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def seconds(value):
    """Return seconds as text; a dash where there are none."""
    return "–" if value is None else f"{value:.1f} s"


def lesson_table(results):
    """Return the table with one row for each lesson."""
    head = [
        "lesson",
        "strict nbval",
        "time",
        "slowest cell",
        "first figure",
        "memory",
        "compared",
        "prose",
        "words",
        "lines",
        "KB",
    ]
    return markdown(
        head,
        [
            [
                path.stem,
                "passes" if row["status"] == 0 else "fails",
                seconds(row["seconds"]),
                seconds(max(row["cells"], default=None)),
                seconds(row["first_figure"]),
                "–" if row["memory"] is None else f"{row['memory'] / 2**30:.2f} GiB",
                f"{row['compared']}/{row['with output']}",
                f"{row['prose %']:.0f} %",
                f"{row['words']:g}",
                f"{row['lines']:g}, max {row['lines max']}",
                path.stat().st_size // 1024,
            ]
            for path, row in results.items()
        ],
    )


def measure_table(rows):
    """Return the table of measures against their bars."""
    signs = {True: "yes", False: "**no**", None: "not measured"}
    return markdown(
        ["measure", "bar", "measured", "met"], [[*row[:3], signs[row[3]]] for row in rows]
    )


def torture_table():
    """Return the table that the last `test --torture` kept; without one, the command that makes it."""
    kept = ROOT / ".pytest_cache/v/course/torture"
    return (
        json.loads(kept.read_text("utf-8"))
        if kept.exists()
        else "No torture lane yet: helpers test --torture"
    )


def lesson_rows(results):
    """Return (measure, bar, measured, met) for what the strict runs and the files show."""
    if not results:
        return [("lessons", "all there", "none", False)]
    passing, count = sum(row["status"] == 0 for row in results), len(results)
    offline = _strict.offline_possible()
    total, longest = sum(row["seconds"] for row in results), max(row["seconds"] for row in results)
    cell = max((max(row["cells"], default=0.0) for row in results), default=0.0)
    memory = max((row["memory"] or 0) for row in results) / 2**30
    figure = max((row["first_figure"] or 0.0) for row in results)
    compared = (
        100
        * sum(row["compared"] for row in results)
        / max(1, sum(row["with output"] for row in results))
    )
    inside = sum(not _notebooks.outside_bands(row, row["number"]) for row in results)
    return [
        ("strict nbval", "all pass", f"{passing} of {count}", passing == count),
        ("whole collection", "≤ 180 s", seconds(total), total <= 180),
        ("slowest lesson", "≤ 45 s", seconds(longest), longest <= 45),
        ("slowest cell", "≤ 30 s", seconds(cell), cell <= 30),
        ("largest kernel", "≤ 1.2 GiB", f"{memory:.2f} GiB", memory <= 1.2 if memory else None),
        ("outputs compared", "≥ 70 %", f"{compared:.0f} %", compared >= 70),
        (
            "without a network",
            "all pass",
            f"{passing} of {count}" if offline else "–",
            passing == count if offline else None,
        ),
        ("kernel start to first figure", "≤ 10 s", seconds(figure), figure <= 10),
        ("rhythm inside the bands", "all", f"{inside} of {count}", inside == count),
    ]


def import_row():
    """Return the row for the cost of importing helpers beyond torch."""
    if not hasattr(os, "fork"):
        return "import helpers beyond torch", "≤ 150 ms, silent", "–", None
    costs = _imports.import_costs()
    worst = max(costs, key=lambda row: row["seconds"])
    silent = not any(row["shown"] or row["seed"] or row["cuda"] for row in costs)
    text = f"{1000 * worst['seconds']:.0f} ms ({worst['name']}), {'silent' if silent else 'not silent'}"
    return (
        "import helpers beyond torch",
        "≤ 150 ms, silent",
        text,
        silent and worst["seconds"] <= 0.150,
    )


def loop_row(pairs=25):
    """Return the row that compares the lesson's training loop with a bare one: same work, one process, alternating."""
    import torch

    from helpers.data import shapes
    from helpers.training import SmallCNN, train_epoch

    images, labels = shapes(1024)
    batches = list(zip(images.split(64), labels.split(64), strict=True))
    times = {"lesson": [], "bare": []}
    for _ in range(pairs + 1):
        for name in times:
            torch.manual_seed(0)
            model = SmallCNN()
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            start = time.perf_counter()
            (train_epoch if name == "lesson" else bare_epoch)(
                model, batches, optimizer, torch.device("cpu")
            )
            times[name].append(time.perf_counter() - start)
    ratio = statistics.median(
        a / b for a, b in list(zip(times["lesson"], times["bare"], strict=True))[1:]
    )
    return "the lesson's training loop against a bare one", "≤ 1.02", f"{ratio:.3f}", ratio <= 1.02


def bare_epoch(model, batches, optimizer, device):
    """Train once through `batches` in one plain loop and return the mean loss per image."""
    import torch
    from torch.nn import functional as F

    total, count = torch.zeros((), device=device), 0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(y)
        count += len(y)
    return total.item() / count


def pytest_row(measure, file, parts):
    """Return the row for one file of tests: pytest's last line, all passed or not."""
    print(f"measuring: {measure} …", file=sys.stderr, flush=True)
    chosen = " and ".join(f"({part})" for part in parts if part)
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        file,
        *(["-k", chosen] if chosen else []),
    ]
    done = subprocess.run(line, cwd=ROOT, text=True, capture_output=True)
    last = (done.stdout.strip().splitlines() or ["nothing"])[-1].strip("= ")
    return (
        measure,
        "all pass",
        last,
        None if " passed" not in last and " failed" not in last else done.returncode == 0,
    )
