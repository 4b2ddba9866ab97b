"""Wrong answers to the exercises of lesson 01."""

from answers import edit, given

FOUND = "torch.accelerator.current_accelerator(check_available=True)"
CUDA = 'torch.device("cuda") if torch.cuda.is_available() else '
ONLY_CUDA = (FOUND, f"{CUDA}None")
NO_XPU = (FOUND, f'{CUDA}torch.device("mps") if torch.backends.mps.is_available() else None')
TEXTS = (  # compares versions as texts
    "float(machine.driver_cuda) // 1 < float(machine.built_for) // 1",
    'machine.driver_cuda.split(".")[0] < machine.built_for.split(".")[0]',
)
WRONG = {
    "pick": (
        edit("which argument asks", "check_available=True", ""),
        edit("returned the string", 'torch.device("cpu")', '"cpu"'),
        edit("'mps' is usable", *ONLY_CUDA),
        edit("'xpu' is usable", *NO_XPU),
        edit("Does every path return", 'torch.device("cpu") if found is None else found', "found"),
        edit("Which index exists", "else found", "else torch.device(found.type, 1)"),
    ),
    "machines": (
        edit("Does this build", 'return "CPU-only build"', 'return "no driver"'),
        edit("talk to the card", 'return "no driver"', 'return "works"'),
        edit("its own major version", " // 1", ""),
        edit("As numbers", *TEXTS),
        edit("'works' of E", '("", "-1")', '("-1",)'),
        edit("leave visible", 'machine.visible in ("", "-1")', "machine.visible is not None"),
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
