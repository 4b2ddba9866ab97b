"""What a report finds in the facts that were collected: each finding with its line, in a sentence, and with a fix."""

from __future__ import annotations

import ast
import linecache
import os
import re
from collections.abc import Iterator
from typing import Any

from practice_gpus.reports import statements, static_analysis

NOTED = 5  # waits or copies on one line that make a loop of it
INNER = 10  # between two optimizer steps
FEW = 16  # bytes: one or two numbers
SMALL = 4096  # bytes that are not worth a copy, where a step makes several
READ_LATER = "add up on the GPU, and read it once at the end, or now and then"
JOIN = "stack them and read them at once, torch.stack([…]).tolist(), or now and then"
ONCE = "read it once, into a variable, and use that"
COPY_LATER = "keep it on the GPU, and copy it once at the end"
LOOP_OVER = "copy all of them at once, before the loop: for … in {}.tolist()"
DECIDE = "a condition needs the number: torch.where, or ask now and then"
PRINT = "print now and then, not in each round"
CLOCK = "only a clock needs to wait: take it out of the loop"
CHOOSE = "it waits for how many are chosen: torch.where, or multiply by the mask"
INDEX = "the index, or the value, is the CPU's and copied each time: make it on the GPU, device=x.device"
CONSTANT = "make it once, before the loop, or with torch.full(…, device=…), which copies nothing"
GATHER = "make it on the GPU, or copy all of it at once"
CAUSAL = "say whether the mask is causal, is_causal=True or False, and nothing is read"
INSIDE = {  # the operator that waits → what the function it is in does
    "d2h": "{} copies to the CPU: call it less often",
    "": "{} waits for all of the GPU's work: call it less often",
    "h2d": "{} copies to the GPU and waits: pinned memory and non_blocking=True don't",
}
READS_INSIDE = "{} reads numbers of the GPU: call it less often, or choose one that doesn't"
ELSE = "the CPU needs a number of the GPU there: move it out of the loop, or use torch.where"
SUM = "adds up tensors with their graphs: that of each step stays, and the sum's grows"
ADD_UP = "add up loss.detach(), and read the sum once, at the end"
CHOOSES = {"nonzero", "index", "masked_select", "_unique2", "unique_dim", "unique_consecutive"}
QUIET = ("h2d", "pinned", "set-up", "scaler", "save")
HABITS = {  # what a loop forgets → (what happens, what to do about it)
    "kept-gradients": (
        "the gradients are never reset, so each step adds to those of all steps before",
        "optimizer.zero_grad() in each step, before backward() or after step()",
    ),
    "same-epoch": (
        "each of {} epochs shuffles in the same order",
        "sampler.set_epoch(epoch) before each pass over the loader",
    ),
    "left-in-eval": (
        "the last {} steps train in eval(): dropout is off, and batch norm's averages stand still",
        "model.train() at the start of each epoch, after the evaluation",
    ),
    "unscaled-accumulation": (
        "{} backward passes add up means before each step: the gradient is {} times as large",
        "divide the loss by {} before backward()",
    ),
}
SAME_SAMPLES = "every rank copies the same samples: the GPUs do each other's work"
SAMPLER = "DataLoader(…, sampler=DistributedSampler(dataset)), or each rank its own part"
OVERLAP = "the ranks share {:.0%} of their samples: their parts overlap, and others are left out"
SEED = (
    "shuffle with the same seed on all ranks, then take rank::world_size; DistributedSampler does"
)
MOST_SHARED = 0.9
STOOD_IN = "{}; with --shapes, each number that's read is 1, as at {}"
NO_SHAPES = "run it without --shapes, or give the sizes as numbers that aren't read from a GPU"
WAITED = re.compile(
    "timed? ?out|connection (closed|reset|refused)|(ended by a|got) signal|SIG(TERM|KILL)", re.I
)
HANG = "as many steps and the same calls on each rank, in the same order: none of them under `if rank …`"
# What an error says → what to do about it, as on the course's page of known errors.
ERRORS = {
    r"found at least two devices|different from other tensors on|should be either on|expected self and mask|"
    r"same device type|not at the same device": "move the odd one: x = x.to(device), or model.to(device)",
    r"Input type .* and (weight|bias) type": "model.to(device) once, x = x.to(device) for each batch",
    r"convert \S+ device type tensor to numpy": "x.detach().cpu().numpy(), or x.numpy(force=True)",
    r"invalid device ordinal|Invalid device id": "numbers begin with 0: compare with torch.cuda.device_count()",
    r"out of memory": "a smaller batch; then accumulation, checkpointing, 16 bits; or a larger card",
    r"Cannot re-initialize CUDA in forked": "torch.multiprocessing.set_start_method('spawn')",
    r"do not imitate FSDP2": "run it with DDP here, or borrow real GPUs",
    r"practice GPUs do not imitate": "leave it out here, or borrow a real GPU",
}


def find(facts: dict) -> list:
    """All findings in the facts of a run: [{"kind", "file", "line", "text", "fix"}]."""
    parts = (hangs, failures, leaked, habits, samples, waits, copies, again, read)
    return [finding for part in parts for finding in part(facts)]


def finding(kind: str, file: str, line: int, text: str, fix: str) -> dict:
    """One finding."""
    return {"kind": kind, "file": file, "line": line, "text": text, "fix": fix}


def source(file: str, line: int, limit: int = 60) -> str:
    """A line of a program, shortened; a statement over several lines as one."""
    node = statements.statement(file, line)
    plain = node is None or isinstance(node, ast.Module)
    text = linecache.getline(file, line) if plain else ast.unparse(node)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def failures(facts: dict) -> Iterator[Any]:
    """The error that ended the program, if it is one of devices."""
    for failure in facts["failures"]:
        text = failure["text"]
        fix = next((fix for words, fix in ERRORS.items() if re.search(words, text)), None)
        file, line = failure["place"]
        if fix is not None:
            devices = f" ({failure['devices']})" if failure["devices"] else ""
            yield finding("placement", file, line, shorten(text) + devices, fix)
        elif facts["stood_in"]:
            words = STOOD_IN.format(shorten(text), short(*facts["stood_in"]))
            yield finding("stand-in", file, line, words, NO_SHAPES)


def hangs(facts: dict) -> Iterator[Any]:
    """Where each rank stands when one of them waits for others."""
    stands = facts["standing"]
    if stands and all(WAITED.search(failure["text"]) for failure in facts["failures"]):
        file, line = next(each["place"] for each in stands if each["call"])
        calls = [
            f"rank {each['rank']} waits in {each['call']} at {short(*each['place'])}"
            if each["call"]
            else f"rank {each['rank']} has ended"
            for each in stands
        ]
        yield finding("hang", file, line, "; ".join(calls), HANG)


def habits(facts: dict) -> Iterator[Any]:
    """What the program's own loop forgets."""
    for habit, file, line, count in facts["habits"]:
        text, fix = (words.format(count, count) for words in HABITS[habit])
        yield finding(habit, file, line, text, fix)


def samples(facts: dict) -> Iterator[Any]:
    """Ranks that train on the same samples."""
    for each in facts["shared"]:
        share = each["share"]
        file, line = each["place"]
        same = share >= MOST_SHARED
        text, fix = (SAME_SAMPLES, SAMPLER) if same else (OVERLAP.format(share), SEED)
        yield finding("same-samples" if same else "overlap", file, line, text, fix)


def shorten(text: str) -> str:
    """The first sentence of an error; of one of a child process, the last line."""
    if "\n\n-- Process" in text:
        text = text.rstrip().rpartition("\n")[2]
    return re.split(r"(?<=[!.]) |\n", text, maxsplit=1)[0][:200]


def leaked(facts: dict) -> Iterator[Any]:
    """Memory that grows from step to step."""
    for leak in facts["leaks"]:
        file, line = leak["place"]
        if leak.get("sum"):
            yield finding("leak", file, line, f"`{leak['name']}` {SUM}", ADD_UP)
            continue
        name = f"`{leak['name']}` keeps" if leak["name"] else f"`{source(file, line)}` leaves"
        text = f"{name} tensors of each step, {size(leak['bytes'])} a step"
        yield finding(
            "leak", file, line, text, "keep numbers, not tensors: .item() at the end, or .detach()"
        )


def waits(facts: dict) -> Iterator[Any]:
    """Lines on which the CPU waits again and again; those of one loop with one fix are one finding.

    Nobody can change what a framework does: its waits stand in the table of waits alone.
    """
    steps = facts["steps"]
    found: dict = {}
    for reason, file, line, count, _, moments, inside, idle, ranks in facts["waits"]:
        times = moments if reason == "print" else count  # printing asks for each number
        often = steps and times >= NOTED and moments >= ranks * max(2, steps / 2)
        prepared = steps and " in " in reason and moments <= ranks  # PyTorch's own, once
        inner = times - idle >= INNER * moments and not prepared
        if reason not in QUIET and file and not inside[0] and (often or inner):
            call, fix = advice(reason, file, line)
            whole = getattr(statements.statement(file, line), "lineno", line)
            loop = statements.loop(file, line) if fix == READ_LATER else None
            rows = found.setdefault((file, fix, loop.lineno if loop else whole), {})
            first, before = rows.get((whole, call), (line, 0))
            rows[whole, call] = min(first, line), before + count // ranks
    for (file, fix, _), rows in found.items():
        count = sum(count for _, count in rows.values())
        ratio = f" in {steps} step{'s' * (steps != 1)}" if steps else ""
        lines = {line: call for (_, call), (line, _) in sorted(rows.items())}
        several = len(lines) > 1
        calls = ", ".join(f"`{call}`" + f" ({line})" * several for line, call in lines.items())
        if several and fix == READ_LATER:
            fix = JOIN if len(set(lines.values())) > 1 else ONCE
        verb = "wait" if several or "`, `" in calls else "waits"
        yield finding("wait", file, min(lines), f"{calls} {verb} {count} times{ratio}", fix)


def advice(reason: Any, file: Any, line: Any) -> Any:
    """(the calls on a line that make the CPU wait, what to do about it)."""
    node = statements.statement(file, line)
    whole = source(file, line)
    operator, _, inside = reason.partition(" in ")
    if statements.calls(node, ["synchronize"]):
        return whole, CLOCK
    if inside:
        causal = inside == "_detect_is_causal_mask"
        return whole, CAUSAL if causal else INSIDE.get(operator, READS_INSIDE).format(inside)
    if operator in CHOOSES:
        return whole, CHOOSE
    if operator == "indices":
        return whole, INDEX
    if operator == "print":
        return whole, PRINT
    if operator in ("d2h", ""):
        return shown(statements.calls(node, ["cpu", "numpy", "tolist"]), whole), COPY_LATER
    reads = statements.calls(node, statements.READS) or statements.calls(node, ["float", "int"])
    loop = statements.loop(file, line)
    loops = [part for part in ast.walk(node or ast.Pass()) if isinstance(part, ast.comprehension)]
    for each in loops + [loop] * isinstance(loop, ast.For):
        over = statements.looped(each)
        if reads and statements.names(each.target) & statements.names(reads[0]) and simple(over):
            return shown(reads, whole), LOOP_OVER.format(ast.unparse(over))
    if statements.is_condition(file, line):
        return shown(reads, whole), DECIDE
    if statements.calls(node, ["print"]) and not reads:
        return whole, PRINT
    return shown(reads, whole), READ_LATER if reads else ELSE


def simple(node: Any) -> Any:
    """Whether a loop goes over a variable itself."""
    return isinstance(node, (ast.Name, ast.Attribute))


def shown(calls: Any, whole: Any) -> Any:
    """The calls as text, or the whole line."""
    return "`, `".join(dict.fromkeys(ast.unparse(call)[:60] for call in calls)) or whole


def copies(facts: dict) -> Iterator[Any]:
    """Lines that copy a few bytes, or a constant, again and again."""
    waiting = {tuple(row[1:3]) for row in facts["waits"]}
    for direction, file, line, count, total, moments, inside, _, ranks in facts["copies"]:
        mean = total / count
        most_steps = moments >= ranks * max(facts["steps"] / 2, min(facts["steps"], 2))
        tiny = mean <= FEW or is_constant(file, line)
        small = mean <= SMALL and moments >= NOTED and count >= 4 * moments
        repeated = count >= NOTED and most_steps
        stalls = direction == "d2d" or direction == "h2d" and (file, line) in waiting
        theirs = bool(inside[0])  # a framework copies batches, and what it makes of them
        if (
            stalls
            and file
            and (tiny and repeated or small)
            and not (theirs or is_batch(file, line))
        ):
            text = f"`{source(file, line)}` copies {mean:.0f} bytes {count // ranks} times"
            fix = CONSTANT if is_constant(file, line) else GATHER
            yield finding("small-copy", file, line, text, fix)


def is_batch(file: Any, line: Any) -> Any:
    """Whether a line copies what the loop around it goes over, such as the batches of a loader."""
    loop = statements.loop(file, line)
    moves = statements.calls(statements.statement(file, line), ["to", "cuda"])
    goes_over = statements.names(loop.target) if isinstance(loop, ast.For) else set()
    makes = any(isinstance(part, ast.Call) for move in moves for part in ast.walk(move.func))
    return not makes and any(statements.names(move.func) & goes_over for move in moves)


def is_constant(file: str, line: int) -> bool:
    """Whether a line makes a tensor of numbers that stand there."""
    made = statements.calls(statements.statement(file, line), ["tensor", "as_tensor"])
    return bool(made) and all(call.args and statements.is_constant(call.args[0]) for call in made)


def again(facts: dict) -> Iterator[Any]:
    """Lines that copy a tensor which was copied before, in each step."""
    for _, file, line, count, total, moments, inside, _, ranks in facts["again"]:
        mean = total / count
        often = count >= NOTED and moments >= max(ranks * facts["steps"] / 2, NOTED)
        if file and not inside[0] and mean > FEW and often:
            times = count // ranks + 1
            text = f"`{source(file, line)}` copies the same {size(mean)} {times} times"
            yield finding("again", file, line, text, "copy it once, before the loop")


def read(facts: dict) -> Iterator[Any]:
    """What can be seen in the files themselves."""
    seen = {path: static_analysis.look(path) for path in facts["files"]}
    kinds = {note[0] for notes in seen.values() for note in notes}
    left_out = {static_analysis.NCCL, "hard-coded"} if static_analysis.NCCL in kinds else set()
    for path, notes in seen.items():
        alike: dict = {}
        for kind, line, text, fix in notes:
            if kind not in left_out:
                alike.setdefault((kind, text, fix), []).append(line)
        for (kind, text, fix), lines in alike.items():
            if len(lines) > 1:
                other_lines = ", ".join(map(str, lines[1:9])) + ", …" * (len(lines) > 9)
                text += f" (also {other_lines})"
            yield finding(kind, path, lines[0], text, fix)


def size(count: float) -> str:
    """``count`` bytes as text."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB"):
        count /= 1024
        if count < 1000:
            return f"{count:.3g} {unit}"
    return f"{count / 1024:.3g} GiB"


def short(file: str, line: int) -> str:
    """A file and a line, as a person would name them."""
    return f"{os.path.basename(file)}:{line}" if file else "inside a library"
