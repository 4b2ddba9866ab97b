"""What a report finds in the facts that were collected: each finding with its line, in a sentence, and with a fix."""

import linecache
import os
import re

from . import sources

NOTED = 5  # waits or copies on one line that make a loop of it
INNER = 10  # between two optimizer steps
FEW = 16  # bytes: one or two numbers
SMALL = 4096  # bytes that are not worth a copy, where a step makes several
# What a line that waits looks like → what to do about it.
WAITS = {
    r"synchronize\(": "only a clock needs to wait: take it out of the loop",
    r"\.item\(|\bfloat\(|\bint\(": "add up on the GPU, and read it once at the end",
    r"\.cpu\(|\.numpy\(|\.tolist\(": "keep it on the GPU, and copy it once at the end",
    r"^\s*(if|while|elif|assert)\b": "a condition needs the number: torch.where, or ask now and then",
    r"\bprint\(": "print now and then, not in each round",
    r"": "the CPU needs a number of the GPU there: move it out of the loop, or use torch.where",
}
# What an error says → what to do about it, as on the course's page of known errors.
ERRORS = {
    r"found at least two devices|different from other tensors on|should be either on|expected self and mask|"
    r"same device type|not at the same device": "move the odd one: x = x.to(other.device)",
    r"Input type .* and (weight|bias) type": "x = x.to(next(model.parameters()).device)",
    r"convert \S+ device type tensor to numpy": "x.detach().cpu().numpy(), or x.numpy(force=True)",
    r"invalid device ordinal|Invalid device id": "numbers begin with 0: compare with torch.cuda.device_count()",
    r"out of memory": "a smaller batch; then accumulation, checkpointing, 16 bits; or a larger card",
    r"Cannot re-initialize CUDA in forked": "torch.multiprocessing.set_start_method('spawn')",
    r"practice GPUs do not imitate": "leave it out here, or borrow a real GPU",
}
EXPRESSION = re.compile(r"[\w.\[\]]+\.(item|tolist|cpu|numpy|synchronize)\([^()]*\)")


def find(facts):
    """All findings in the facts of a run: [{"kind", "file", "line", "text", "fix"}]."""
    parts = (failures, leaked, waits, copies, read)
    return [finding for part in parts for finding in part(facts)]


def finding(kind, file, line, text, fix):
    """One finding."""
    return {"kind": kind, "file": file, "line": line, "text": text, "fix": fix}


def source(file, line, limit=60):
    """A line of a program, shortened."""
    text = " ".join(linecache.getline(file, line).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def failures(facts):
    """The error that ended the program, if it is one of devices."""
    for failure in facts["failures"]:
        text = failure["text"]
        fix = next((fix for words, fix in ERRORS.items() if re.search(words, text)), None)
        if fix is not None:
            devices = f" ({failure['devices']})" if failure["devices"] else ""
            yield finding("placement", *failure["place"], shorten(text) + devices, fix)


def shorten(text):
    """The first sentence of an error; of one of a child process, the last line."""
    if "\n\n-- Process" in text:
        text = text.rstrip().rpartition("\n")[2]
    return re.split(r"(?<=[!.]) |\n", text, maxsplit=1)[0][:200]


def leaked(facts):
    """Memory that grows from step to step."""
    for leak in facts["leaks"]:
        file, line = leak["place"]
        name = f"`{leak['name']}` keeps" if leak["name"] else f"`{source(file, line)}` leaves"
        text = f"{name} tensors of each step, {size(leak['bytes'])} a step"
        yield finding(
            "leak", file, line, text, "keep numbers, not tensors: .item() at the end, or .detach()"
        )


def waits(facts):
    """Lines on which the CPU waits again and again."""
    steps = facts["steps"]
    for reason, file, line, count, _, moments in facts["waits"]:
        times = moments if reason == "print" else count  # printing asks for each number
        often = steps and times >= max(NOTED, steps / 2)
        text = source(file, line)
        inner = times >= INNER * moments
        if reason not in ("h2d", "scaler", "save") and file and (often or inner):
            fix = next(fix for words, fix in WAITS.items() if re.search(words, text))
            match = EXPRESSION.search(text)
            call = match[0] if match else text
            ratio = f" in {steps} steps" if steps else ""
            yield finding("wait", file, line, f"`{call}` waits {count} times{ratio}", fix)


def copies(facts):
    """Lines that copy a few bytes again and again."""
    steps = facts["steps"]
    for direction, file, line, count, total, moments in facts["copies"]:
        mean = total / count
        most_steps = not steps or moments >= steps / 2
        tiny = mean <= FEW and count >= NOTED and most_steps
        small = mean <= SMALL and moments >= NOTED and count >= 4 * moments
        if direction != "d2h" and file and (tiny or small):
            text = f"`{source(file, line)}` copies {mean:.0f} bytes {count} times"
            yield finding(
                "small-copy", file, line, text, "make it on the GPU, or copy all of it at once"
            )


def read(facts):
    """What can be seen in the files themselves."""
    for path in facts["files"]:
        alike = {}
        for kind, line, text, fix in sources.look(path):
            alike.setdefault((kind, text, fix), []).append(line)
        for (kind, text, fix), lines in alike.items():
            if len(lines) > 1:
                other_lines = ", ".join(map(str, lines[1:9])) + ", …" * (len(lines) > 9)
                text += f" (also {other_lines})"
            yield finding(kind, path, lines[0], text, fix)


def size(count):
    """``count`` bytes as text."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000 or unit == "GiB":
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024


def short(file, line):
    """A file and a line, as a person would name them."""
    return f"{os.path.basename(file)}:{line}" if file else "inside PyTorch"
