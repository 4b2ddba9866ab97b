"""Wrong answers to the exercises of lesson 03."""

from answers import edit, given, instead
from lessons.lesson03.exercises import FIXES

META = '    with torch.device("meta"):\n        values = build()(torch.empty(1, *shape)).numel()\n'
ALL_ON_META = "    return nn.Sequential(build(), nn.Flatten(), nn.Linear(values, classes))"
KEEP = ("mean", "std")


def keep(line):
    """Return the changes by which Normalize keeps each tensor by `line`."""
    pairs = [(f'self.register_buffer("{n}", {n})', line.replace("NAME", n)) for n in KEEP]
    return [text for pair in pairs for text in pair]


WRONG = {
    "flat": (
        edit("height and width together", META, "    values = 500\n"),
        edit("a real picture", META, "    values = build()(torch.rand(1, *shape)).numel()\n"),
        edit("How many pictures", "empty(1,", "empty(8,"),
        edit("expected cpu", ALL_ON_META, "    " + ALL_ON_META),
        edit("makes each picture one row", "nn.Flatten(), ", ""),
        edit("postpones", "nn.Linear(values, classes)", "nn.LazyLinear(classes)"),
        given("returned int", lambda build, shape, classes: 512),
    ),
    "buffer": (
        edit("plain attribute", *keep("self.NAME = NAME")),
        edit("what forward returns", "return (x", "(x"),
        given("without parentheses", lambda mean, std: mean),
        edit("is a parameter", *keep("self.NAME = nn.Parameter(NAME)")),
        edit("persistent", *keep('self.register_buffer("NAME", NAME, persistent=False)')),
        edit("before anyone", *keep('self.register_buffer("NAME", NAME.to("cuda"))')),
        edit("differs from", *keep('self.register_buffer("NAME", NAME * 0 + 1)')),
        edit("the attribute std", '        self.register_buffer("std", std)\n', ""),
    ),
    "messages": (
        instead("which means the CPU", A=FIXES["B"], B=FIXES["A"]),
        instead("without cuda", B=FIXES["A"]),
        instead("the model keep", C=FIXES["A"]),
        instead("this very line", D=FIXES["C"]),
        instead("both are on a GPU", E=FIXES["A"]),
    ),
}
