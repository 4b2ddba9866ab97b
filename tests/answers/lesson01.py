"""Wrong answers to the exercises of lesson 01."""

from answers import edit, given

NO_MPS = ("    if torch.backends.mps.is_available():\n", "", 'return torch.device("mps")', "pass")
ASK_MPS = 'if torch.backends.mps.is_available():\n        return torch.device("mps")\n    '
TEXTS = (  # compares versions as texts
    "float(machine.driver_cuda) // 1 < float(machine.built_for) // 1",
    'machine.driver_cuda.split(".")[0] < machine.built_for.split(".")[0]',
)
WRONG = {
    "pick": (
        edit(
            "the name alone does not tell",
            "torch.cuda.is_available()",
            "torch.version.cuda or True",
        ),
        edit("returned the string", 'torch.device("cuda")', '"cuda"'),
        edit("MPS is there", *NO_MPS),
        edit("Does every path return", '    return torch.device("cpu")', "    return None"),
        edit("ask first", "if torch.cuda", f"{ASK_MPS}if torch.cuda"),
        edit("Which index exists", '"cuda"', '"cuda:1"'),
    ),
    "machines": (
        edit("Does this build", 'return "CPU-only build"', 'return "no driver"'),
        edit("talk to the card", 'return "no driver"', 'return "works"'),
        edit("its own major version", " // 1", ""),
        edit("As numbers", *TEXTS),
        edit("'works' of F", '("", "-1")', '("-1",)'),
        edit("leave visible", 'machine.visible in ("", "-1")', "machine.visible is not None"),
        edit("Compare the card's capability", "machine.oldest <= ", ""),
        edit("of H, a PC with an RTX 5090", " <= machine.newest", ""),
        edit("Nothing is missing", "machine.oldest <=", "machine.oldest <"),
        edit("none of the answers", '"no driver"', '"driver"'),
        given("you say 7 of A", lambda machine: 7),
    ),
    "limit": (
        edit("only the longer", "overhead + max(compute, memory)", "overhead + compute + memory"),
        edit("Each call has its overhead", "overhead + max(", "max("),
        edit("Look at the units", "* 1e12) * 1e3", "* 1e12)", "* 1e9) * 1e3", "* 1e9)"),
        edit("The slower of", "overhead + max(compute, memory)", "overhead + min(compute, memory)"),
        edit("Which part is longest", "max(parts, key=", "min(parts, key="),
        edit("expected two values", ", max(parts, key=parts.get)", ""),
        edit("is there a `return`", "    return overhead", "    overhead"),
    ),
}
