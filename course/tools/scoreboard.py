"""Forecasts of the clock against what others measured: errors by table, card, family and regime, and two baselines."""

import argparse
import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from typing import Any

from course.measurements import forecasts
from course.measurements.forecasts import Point, stored, summary
from course.tools import WrongCall, _held_back
from course.tools._arguments import positive
from course.tools._cases import TABLES, Case

HELP = "compare the clock's forecasts with published measurements"


def points(cases: list[Case], progress: Callable[[str], None] = lambda text: None) -> list[Point]:
    """A `Point` for each case whose card and network are known here; each step runs once, on shapes alone."""
    from practice_gpus.cards import find_card

    recorded = {}
    found = []
    for case in sorted(cases, key=lambda case: repr(case.key)):
        try:
            card = find_card(case.card)
        except ValueError:
            continue
        if case.key not in recorded:
            recorded = {case.key: record(case, progress)}
        forecast = recorded[case.key]
        if forecast is not None:
            found.append(point(case, planned(forecast, case).on(card)))
    return found


def planned(forecast: Any, case: Case) -> Any:
    """The forecast on as many GPUs as the case has, by its plan, and compiled where it was."""
    plans = [word for word in case.how.split() if word in ("fsdp", "tp")]
    if case.how.startswith(("compiled", "graph")):
        forecast = forecast.fused
    if case.how.startswith("graph"):
        forecast = forecast.graphed
    return forecast.on(gpus=case.gpus, plan=plans[0] if plans else "ddp")


def record(case: Case, progress: Callable[[str], None]) -> Any:
    """The forecast of a case's step, or None where it does not run here."""
    import torch

    from practice_gpus import practice_gpus

    progress(f"{case.table} {case.network}")
    choose_attention(case)
    tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    try:
        with practice_gpus(1, "4000 GiB", values=False, stand_in=0.0) as gpus:
            step = case.make()
            if step is None:
                return None
            return gpus.forecast(step, card="RTX 3090")
    except (RuntimeError, NotImplementedError, ValueError, TypeError, AttributeError) as error:
        progress(f"{case.network}: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
        return None
    finally:
        torch.backends.cuda.matmul.allow_tf32 = tf32


def choose_attention(case: Case) -> None:
    """Give timm's networks the attention of their time: fused since PyTorch 2.0."""
    with contextlib.suppress(ImportError):
        import_module("timm.layers").set_fused_attn(case.kind == "inference")


def point(case: Case, forecast: Any) -> Point:
    """The forecast and the baselines of a case; operators ran ten times, so a tenth."""
    share = 10 if case.kind == "operator" else 1
    works = [entry.work for entry in forecast.entries if hasattr(entry, "work")]
    card = forecast.card
    flops = sum(work.flops / card.peak(work.unit) for work in works if work.flops)
    moved = sum(work.bytes for work in works) / card.bandwidth / 1e9
    whole = forecast.ms, forecast.low_ms, forecast.high_ms, 1e3 * flops, 1e3 * moved
    times = [round(time / share, 5) for time in whole]
    return Point(
        case.table, case.network, card.name, case.kind, forecast.bound, case.measured_ms, *times
    )


def report(found: list[Point]) -> str:
    """The summaries as text, one line a group."""
    head = f"{'':34}points  error  ≤1.5×   rank  range  FLOPs÷peak  bytes÷bandwidth"
    lines = [head]
    for title, group in (
        ("table", lambda p: f"{p.table}, {p.kind}"),
        ("card", lambda p: f"{p.card}, {p.kind}"),
        ("regime", lambda p: f"{p.bound}, {p.kind}"),
        ("family", lambda p: p.family),
    ):
        lines.append(f"by {title}")
        groups: dict = {}
        for each in found:
            groups.setdefault(group(each), []).append(each)
        for name, chosen in sorted(groups.items()):
            lines.append(line(name, summary(chosen)))
    misses = [p for p in found if not 1 / 1.5 <= p.ratio <= 1.5]
    lines.append("farther off than 1.5 times: forecast ÷ measured")
    misses.sort(key=lambda p: p.ratio)
    lines += [f"  {p.ratio:.2f}  {p.network}, {p.card}, {p.kind}" for p in misses]
    return "\n".join(lines)


def line(name: str, s: dict) -> str:
    """One line of the report."""
    rank = "–" if s["rank"] is None else f"{s['rank']:.2f}"
    return (
        f"  {name[:32]:32}{s['points']:6}{s['median_error']:7.0%}{s['within_1_5']:7.0%}{rank:>7}"
        f"{s['in_range']:7.0%}{s['flops_error']:12.0%}{s['bytes_error']:17.0%}"
    )


def held_back(stored: bool, store: bool) -> list[dict[str, Any]]:
    """The held-back rows with their forecasts: the stored ones, or new ones where the networks can be made here."""
    rows = forecasts.held_rows()
    if not stored:
        steps: dict[tuple, Any] = {}
        for row, case in zip(rows, _held_back.cases(), strict=True):
            if case.key not in steps:
                steps[case.key] = record(case, print)
            if steps[case.key] is not None:
                found = planned(steps[case.key], case).on(case.card)
                times = {"forecast_ms": found.ms, "low_ms": found.low_ms, "high_ms": found.high_ms}
                row |= {name: round(ms, 4) for name, ms in times.items()}
    if store:
        table = json.loads(forecasts.HELD.read_text(encoding="utf-8"))
        lines = ",\n".join(json.dumps(list(row.values())) for row in rows)
        head = json.dumps({name: table[name] for name in ("sources", "columns")}, indent=1)
        text = f'{head[:-2]},\n "rows": [\n{lines}\n]}}\n'
        forecasts.HELD.write_text(text, encoding="utf-8")
    return [row for row in rows if row["forecast_ms"]]


def held_report(rows: list[dict[str, Any]]) -> str:
    """The held-back points by set and kind of use, then by table and kind."""
    lines = [f"{'':34}points median  ≤1.5×  range  too fast : too slow  width of the range"]
    for title, key in (
        *(
            (name, lambda r, which=which: forecasts.held_kind(r) * (r["second"] == which))
            for which, name in enumerate(forecasts.SETS)
        ),
        ("by table", lambda r: f"{r['source']}, {forecasts.held_kind(r)}"),
    ):
        chosen = [row for row in rows if key(row)]
        groups = {
            name: [r for r in chosen if key(r) == name] for name in sorted(set(map(key, chosen)))
        }
        lines.append(title)
        for name, group in (groups if title == "by table" else {"all": chosen} | groups).items():
            s = forecasts.held_summary(group)
            lines.append(
                f"  {name[:32]:32}{s['points']:6}{s['median']:7.2f}{s['within_1_5']:7.0%}{s['in_range']:7.0%}"
                f"{s['fast']:7} : {s['slow']}{s['width']:15.1f}"
            )
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `scoreboard`."""
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; all without one")
    parser.add_argument(
        "--every", type=positive, default=1, help="only every Nth case of timm's tables"
    )
    parser.add_argument(
        "--held-back", action="store_true", help="the points of more kinds of use, instead"
    )
    parser.add_argument("--stored", action="store_true", help="print what was stored, run nothing")
    parser.add_argument(
        "--write", action="store_true", help=f"store the points in {forecasts.FILE.name}"
    )


def run(options: argparse.Namespace) -> int:
    """Forecast, compare and print. Returns 0, or 2 when wrongly called."""
    unknown = set(options.tables) - set(TABLES)
    if unknown:
        raise WrongCall(f"tables are {', '.join(TABLES)}; not {', '.join(sorted(unknown))}")
    if options.held_back:
        print(held_report(held_back(options.stored, options.write)))
        return 0
    if options.stored:
        print(report(stored()))
        return 0
    found = []
    for table in options.tables or TABLES:
        every = options.every if table.startswith("timm") else 1
        found += points(list(TABLES[table]())[::every], lambda text: print(text, flush=True))
        if options.write:
            write(found)
    print(report(found))
    return 0


def write(found: list[Point]) -> None:
    """Store points, one a line, in place of those of the same tables."""
    tables = {each.table for each in found}
    kept = (
        [each for each in stored() if each.table not in tables] if forecasts.FILE.exists() else []
    )
    lines = ",\n".join(json.dumps(asdict(each)) for each in [*kept, *found])
    forecasts.FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
