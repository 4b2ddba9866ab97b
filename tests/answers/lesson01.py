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
        instead("cuda_build", A="no driver"),
        instead("driver, beside cards", B="CPU-only build"),
        instead("cuda_error", C="no driver"),
        instead("capability, beside", E="hidden"),
        instead("none of the answers", D=7),
        given("no answer for", {"A": "no driver"}),
    ),
    "impossible": (
        instead("didn't wait", B="possible"),
        instead("cache", C="possible"),
        instead("came only with", D="impossible"),
        instead("75% of it", A="impossible"),
    ),
}
