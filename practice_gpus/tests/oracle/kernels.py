"""Write cuda_kernels.txt: what CUDA says where the CPU has no kernel for a dtype, as the oracle finds it.

`python kernels.py`: a line for each kernel of the CPU, or for one in an operator: its name as messages have it, the dtypes
for which CUDA raises as well, and how: the name of its kernel, or the exception with its words ({} is the dtype).
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import compare

KERNEL = re.compile(r"\"([^\"]+)\" not implemented for '(\w+)'")
OURS = re.compile(
    r"do not imitate aten::(\w+).*code for it: \"([^\"]+)\" not implemented for '(\w+)'"
)
TARGET = compare.SOURCE / "practice_gpus/pytorch/cuda_kernels.txt"
HEAD = "# kernel of the CPU, or operator/kernel; dtypes for which CUDA raises, too; its kernel, or its exception: words\n"
OPEN = re.compile("INTERNAL ASSERT|segment_reduce|infs or NaNs|can be implicitly|clamp is not")


def said(theirs: list, dtype: str) -> str:
    """CUDA's kernel, or its exception with its words; "" where it raises nothing, or for another reason."""
    if theirs[0] != "raises" or OPEN.search(theirs[2]):
        return ""
    match = KERNEL.fullmatch(theirs[2])
    if match:
        return match[1] if match[2] == dtype else ""
    words = re.sub(rf"\b{dtype}\b", "{}", theirs[2])
    return f"{theirs[1]}: {words}" if "{}" in words or "Sort does not" in words else ""


def table(oracle: dict[str, list], bare: dict[str, list]) -> dict[str, dict[str, set]]:
    """Operator/kernel of the CPU → what CUDA says → dtypes."""
    votes: dict = defaultdict(Counter)
    for key, ours in bare.items():
        match = OURS.search(ours[2]) if ours[0] == "raises" else None
        if match:
            operator, kernel, dtype = match.groups()
            votes[operator, kernel, dtype][said(oracle[key], dtype)] += 1
    found: dict = defaultdict(lambda: defaultdict(set))
    for (operator, kernel, dtype), counted in votes.items():
        words, count = counted.most_common(1)[0]
        says = words if count > counted[""] else ""
        found[f"{operator}/{kernel}"][says].add(dtype)
    return found


def lines(found: dict[str, dict[str, set]]) -> list[str]:
    """The table's lines: a kernel that says the same in each operator has one."""
    kernels: dict = defaultdict(list)
    for key, said_of in found.items():
        kernels[key.split("/")[1]].append((key, said_of))
    rows = []
    for kernel, members in kernels.items():
        same = len({word for _, said_of in members for word in said_of if word}) == 1
        lacked = {
            dtype for _, said_of in members for word in said_of for dtype in said_of[word] if word
        }
        same &= not any(
            lacked & said_of[""] for _, said_of in members
        )  # one operator has what another lacks
        merged: dict = defaultdict(set)
        for key, said_of in members:
            for words, dtypes in said_of.items():
                merged[kernel if same else key, words] |= dtypes if words else set()
        rows += [
            f"{key}\t{' '.join(sorted(d))}\t{words}" for (key, words), d in merged.items() if d
        ]
    return sorted(rows)


def main() -> None:
    """Run everything, and write the table."""
    with tempfile.TemporaryDirectory() as folder:
        oracle, bare = compare.both(Path(folder), "oracle", "bare")
    TARGET.write_text(HEAD + "\n".join(lines(table(oracle, bare))) + "\n")


if __name__ == "__main__":
    main()
