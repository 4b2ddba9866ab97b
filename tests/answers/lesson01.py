"""Wrong answers to the exercises of lesson 01."""

from answers import edit, given, instead

NO_MPS = ("    if torch.backends.mps.is_available():\n", "", 'return torch.device("mps")', "pass")
ASK_MPS = 'if torch.backends.mps.is_available():\n        return torch.device("mps")\n    '
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
        instead("torch.version.cuda", A="no driver"),
        instead("next to the cards on the bus", B="CPU-only build"),
        instead("11040", C="no driver"),
        instead("capability, next to", E="hidden"),
        instead("none of the answers", D=7),
        given("no answer for", {"A": "no driver"}),
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
