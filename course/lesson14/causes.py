"""Why a criterion isn't met: sentences that begin with the file and line of the project."""

import ast
import traceback
from collections import Counter
from pathlib import Path

from practice_gpus.clock import Launch
from practice_gpus.reports import CHOOSES, source, statements

FORMATS = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16"}  # a T4 has no TF32
MANY = 64  # kernels from one line in one step
NO_STATEMENT = ("class ", "def ", "#", '"', "from ", "import ")


def short(place) -> str:
    """A file and a line as "train.py:41"."""
    return f"{Path(place[0]).name}:{place[1]}" if place else "train.py:1"


def shown(lines) -> str:
    """A line and what stands there."""
    return f"{short(lines[0])} `{source(*lines[0])}`" if lines else "train.py:1"


def at(finding) -> tuple:
    """The place of a finding."""
    return finding["file"], finding["line"]


def lines_of(error, folder) -> list:
    """(file, line) of an error's frames in the project, outermost first."""
    frames = traceback.extract_tb(error.__traceback__)
    return [(f.filename, f.lineno) for f in frames if f.filename.startswith(str(folder))]


def caller(done, place) -> str:
    """Which line of another file was on its way to the line that failed."""
    lines = lines_of(done.error, Path(place[0]).parent) if done.error else []
    others = [line for line in lines if line[0] != place[0]]
    return f", called at {short(others[-1])}," if others else ""


def failure(done) -> str:
    """Where a run on a practice GPU failed, who called that line, and the fix if one is known."""
    known = [each for each in done.findings if each["kind"] == "placement"]
    if known:
        place = at(known[0])
        return f"{shown([place])}{caller(done, place)} {known[0]['text']} → {known[0]['fix']}"
    failures = done.facts["failures"]
    if not failures:
        return f"train.py:1 ended early ({type(done.error).__name__})"
    return f"{shown([failures[0]['place']])} {failures[0]['text'].splitlines()[0]}"


def repeated(done) -> dict:
    """{place: its finding} of the waits that come back from step to step, but for those of the GradScaler."""
    rows = [*done.facts["waits"], *done.facts["copies"]]
    often = {(file, line) for _, file, line, _, _, steps, *_ in rows if steps > 1}
    found: dict = {}
    for each in done.findings:
        if each["kind"] in ("wait", "small-copy") and at(each) in often:
            found.setdefault(at(each), each)
    return found


def waits(done) -> list:
    """A sentence for each repeated wait."""
    return [f"{short(p)} {each['text']} → {each['fix']}" for p, each in repeated(done).items()]


def choices(done) -> list:
    """Of each repeated wait, whether the CPU waits there to learn how many elements are chosen."""
    chosen = {(file, line) for why, file, line, *_ in done.facts["waits"] if why in CHOOSES}
    return [place in chosen for place in repeated(done)]


def copies(done) -> str:
    """Which lines of the loop wait for a plain copy, which the judge allows: batches have to come from somewhere."""
    rows = done.facts["waits"]
    lines = {
        (file, line)
        for reason, file, line, _, _, steps, *_ in rows
        if reason == "h2d" and steps > 1
    }
    places = ", ".join(short(line) for line in sorted(lines))
    return (
        f" but for plain copies at {places}: from memory that's already pinned, with non_blocking=True, they don't wait"
        if lines
        else ""
    )


def too_large(done, folder) -> str:
    """Which call of the model didn't fit, and what the memory is for."""
    if type(done.error).__name__ != "OutOfMemoryError":
        return failure(done)
    lines = lines_of(done.error, Path(folder).resolve())
    outside = [line for line in lines if Path(line[0]).name != "model.py"] or lines
    held = max(done.facts["devices"], key=lambda device: device["peak"])["parts"]
    kind, amount = max(held.items(), key=lambda part: part[1])
    after = ", after the last training step" if outside[-1][0].endswith("evaluate.py") else ""
    return f"{shown(outside[-1:])} doesn't fit{after}: {kind} take {amount / 2**30:.1f} GiB"


def slow(step, spy) -> str:
    """What makes a step slow: its number format, then lines that launch many kernels, else the line that takes longest."""
    busiest = max(step.kernels, key=lambda kernel: kernel.ms)
    found = [*wide(step, spy), *loops(step, spy)]
    return "; ".join(found) or f"{busiest.line} takes longest, {busiest.ms:.1f} ms"


def wide(step, spy) -> list:
    """A sentence if most arithmetic of a step is in a format for which the card has no tensor cores."""
    flops: Counter = Counter()
    for entry in launches(step):
        flops[entry.work.unit] += entry.work.flops
    unit = max(flops, key=lambda unit: flops[unit])
    taken = FORMATS.get(unit, unit)
    told = f"{shown(spy.called)} multiplies in {taken}; a T4's tensor cores take float16"
    return [told] * (step.card.peak(unit) <= step.card.peak("fp32"))


def loops(step, spy) -> list:
    """A sentence for each line that launches many kernels in a step."""
    lines = Counter(entry.place for entry in launches(step) if not entry.backward)
    many = [(place, count) for place, count in lines.most_common(3) if count >= MANY]
    return [f"{loop_at(place, spy)} launches {count} kernels a step" for place, count in many]


def launches(step) -> list:
    """The kernels that a step launches."""
    return [entry for entry in step.entries if isinstance(entry, Launch)]


def loop_at(place, spy) -> str:
    """The loop around a line "train.py:23" of the project, or that line."""
    name, _, number = place.partition(":")
    file = str(Path(spy.folder) / name)
    loop = statements.loop(file, int(number or 0))
    return f"{place} in the loop of line {loop.lineno}" if loop else place


def feeding(lines) -> str:
    """The loop that feeds the model: the innermost one around the lines that were running."""
    for file, line in lines:
        loop = statements.loop(file, line)
        if isinstance(loop, ast.For):
            return f"{short((file, loop.lineno))} `for … in {ast.unparse(loop.iter)}`"
    return shown(lines[-1:])


def other_losses(losses, truth, off, told, spy) -> str:
    """Since when the losses are others, and whether it's because of other clips."""
    count = min(len(truth["clips"]), len(told["clips"]))
    same = all(
        mine[0] == theirs[0] and abs(mine[1] - theirs[1]) < 0.5
        for mine, theirs in zip(told["clips"][:count], truth["clips"][:count], strict=True)
    )
    if not same or len(losses) != len(truth["losses"]):
        return f"{feeding(spy.called)} gives the steps other clips than before"
    number = off[0]
    where = shown(spy.called) if number == 0 else shown(spy.stepped)
    return f"{where} the loss of step {number + 1} is {losses[number]:.3f}, it was {truth['losses'][number]:.3f}"


def line_with(folder, *words) -> str:
    """The first line that holds one of `words`, the first of them if it's there: "model.py:66 `self.head = …`"."""
    files = sorted(Path(folder).glob("*.py"))
    lines = [(f.name, n, s) for f in files for n, s in enumerate(f.read_text().splitlines(), 1)]
    for word in words:
        for file, number, text in lines:
            if word in text and not text.lstrip().startswith(NO_STATEMENT):
                return f"{file}:{number} `{text.strip()}`"
    return f"train.py:1 has no {words[0]}"


def apart(ranks, alone) -> str:
    """What keeps two processes from training as one, or ""; `alone`: the clips of a step of the untouched project."""
    first, second = ranks
    folder = Path(first["called"][0][0]).parent if first.get("called") else None
    # first who failed in a line of its own: the other may only have waited for it
    for number, rank in sorted(enumerate(ranks), key=lambda pair: not pair[1]["line"]):
        if rank["error"] and rank.get("unused") and "reduction" in rank["error"]:
            layer = rank["unused"][0].rpartition(".")[0].split(".")[-1]
            return f"{line_with(folder, f'self.{layer} =')} gets no gradient, and the others wait for it"
        if rank["error"]:
            return f"{short(rank['line'])} rank {number}: {rank['error'].splitlines()[0][:200]}"
    if "cpu" in (first["device"], second["device"]):
        return f"{line_with(folder, 'Net(')} leaves the model on the CPU"
    if first["device"] == second["device"]:
        chosen = line_with(folder, "set_device", "device(", "cuda", "Net(")
        return f"{chosen}: both processes use {first['device']}"
    if first["clips"] == second["clips"]:
        return f"{feeding(first['called'])} gives both processes the same clips"
    count = min(len(first["weights"]), len(alone))
    together = [a[0] + b[0] for a, b in zip(first["clips"][:count], second["clips"])]
    if together != [clips for clips, _ in alone[:count]]:
        return f"{feeding(first['called'])} gives a step {together[:1]} clips, it had {alone[0][0]}"
    pairs = zip(first["weights"], second["weights"])
    if not all(abs(a - b) < 1e-3 + 1e-5 * abs(a) for a, b in pairs):
        return f"{shown(first['stepped'])} the weights of the two differ: no gradient is averaged"
    return ""
