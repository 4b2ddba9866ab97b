"""What can go wrong with a kernel: each error names the line of the kernel and the thread, as compute-sanitizer does."""

from dataclasses import dataclass


class KernelError(Exception):
    """A kernel did something that a GPU doesn't allow, or that has no defined result."""


class OutOfBounds(KernelError, IndexError):
    """A thread read or wrote outside every tensor that the kernel was given, or outside its shared memory."""


class Misaligned(KernelError):
    """A thread's address isn't a multiple of the size of its access."""


class Race(KernelError):
    """Two threads touched the same memory, one of them writing, and nothing orders the two."""


class BarrierError(KernelError):
    """Some threads of a block can't reach the barrier at which the others wait, or a shuffle at which a warp meets."""


class AssertFailed(KernelError, AssertionError):
    """An assert of the kernel doesn't hold."""


class Endless(KernelError, TimeoutError):
    """The kernel waits for what can't come, or ran longer than it was given."""


class Uninitialized(KernelError):
    """What a kernel computes hangs on memory that nobody has written."""


class Contract(KernelError):
    """The kernel writes what it was given to read, or leaves a part of its output unwritten."""


class CompileError(KernelError, ValueError):
    """The compiler refused the kernel; the message is the compiler's own."""


class CompileTimeout(KernelError, TimeoutError):
    """The compiler needed longer than it was given."""


class Unsupported(KernelError, NotImplementedError):
    """The code holds an instruction that isn't executed here; the message has its name."""


class CompilerMissing(ImportError):
    """Triton or NVRTC isn't installed, or has no build for this machine."""


@dataclass(frozen=True)
class Line:
    """A place in the kernel's source: its number, counted from 1 in the text that was compiled, and its text.

    `file` is the name of one that the source includes, else "".
    """

    number: int = 0
    text: str = ""
    file: str = ""

    def __str__(self):
        if self.number < 1:
            return self.text or "the kernel"  # a function that the kernel calls has no number
        return f"{self.file} line {self.number}: {self.text}".lstrip()
