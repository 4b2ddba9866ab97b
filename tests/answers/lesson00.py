"""Wrong answers to the exercise of lesson 00."""

from answers import edit

WRONG = {
    "warm_up": (
        edit("the count", ".float().mean()", ".sum()"),
        edit("is a tensor", ".item()", ""),
        edit("is there a `return`", "return ", ""),
        edit("the fraction that is wrong", "==", "!="),
        edit("could not infer output dtype", ".float()", ""),
    )
}
