"""Wrong answers to the exercises of lesson 03."""

from torch import nn

from answers import edit, given

TWIN = '    twin = copy.deepcopy(body).to("meta")\n'
EMPTY = 'torch.empty(1, *shape, device="meta")'
KEEP = ("mean", "std")
LOOP = "    for place, module in model.named_modules():\n"


def keep(line):
    """Return the changes by which Normalize keeps each tensor by `line`."""
    pairs = [(f'self.register_buffer("{n}", {n})', line.replace("NAME", n)) for n in KEEP]
    return [text for pair in pairs for text in pair]


WRONG = {
    "flat": (
        edit("height and width", f"twin({EMPTY}).numel()", "500"),
        edit("a real photo", f"twin({EMPTY})", "body(torch.rand(1, *shape))"),
        edit("How many photos", "empty(1,", "empty(8,"),
        edit("moves the module itself", TWIN, '    twin = body.to("meta")\n'),
        edit("makes each photo one row", "nn.Flatten(), ", ""),
        edit("takes 0 values", "nn.Linear(features, classes)", "nn.LazyLinear(classes)"),
        given("lacks the trained weights", lambda body, shape, classes: nn.Linear(4, classes)),
        given("returned int", lambda body, shape, classes: 512),
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
    "left": (
        edit("submodule's name", LOOP, '    for place, module in [("", model)]:\n'),
        edit("may be a list", "(dict, list, tuple)", "dict"),
        edit("a tuple of tensors", "(dict, list, tuple)", "(dict, list)"),
        edit("a dict of tensors", "(dict, list, tuple)", "(list, tuple)"),
        edit("'_buffers' is registered", '("_parameters", "_buffers", "_modules")', "()"),
        edit("plain attributes", "(torch.Tensor, nn.Module)) for", "nn.Module) for"),
        edit(
            "'bias' is registered",
            "return found",
            "return [n for n, _ in model.named_parameters()]",
        ),
        edit("to `return`", "return found", "found"),
        given("a list of names", lambda model: [nn.Linear(2, 2)]),
    ),
}
