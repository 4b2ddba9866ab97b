"""Wrong answers to the exercise of lesson 00."""

from answers import edit

MOVE = 'right = right.to("cuda:0")'
WRONG = {
    "warm_up": (
        edit("same device", MOVE, 'right.to("cuda:0")'),
        edit("on top of the other", "dim=2", "dim=1"),
        edit("expected (3, 224, 224)", "dim=2", "dim=0"),
        edit("Which half comes first", "[left, right]", "[right, left]"),
        edit("on the CPU", MOVE, "left, right = left.cpu(), right.cpu()"),
        edit("is there a `return`", "return ", ""),
    )
}
