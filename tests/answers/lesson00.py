"""Wrong answers to the exercise of lesson 00."""

from helpers.checks.core import Wrong


def _count(guesses, labels):
    return (guesses == labels).sum().item()


def _still_a_tensor(guesses, labels):
    return (guesses == labels).float().mean()


def _no_return(guesses, labels):
    (guesses == labels).float().mean().item()


def _share_wrong(guesses, labels):
    return (guesses != labels).float().mean().item()


WRONG = {
    "warm_up": (
        Wrong(_count, "that's how many"),
        Wrong(_still_a_tensor, "is a tensor"),
        Wrong(_no_return, "NoneType"),
        Wrong(_share_wrong, "the share that is wrong"),
        Wrong(lambda guesses, labels: 1.0, "a share of 0.75"),
    )
}
