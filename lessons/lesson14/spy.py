"""What a program trains: where it calls its model, on which device, with which clips, and where it steps."""

import sys
from pathlib import Path

import torch
from torch.optim import optimizer as optimizers


class Spy:
    """Watches the program in `folder` by PyTorch's hooks; with `values` it reads clips and weights, too, which waits."""

    def __init__(self, folder, values=False):
        self.folder = str(Path(folder).resolve())
        self.values = values
        self.model = None  # what the program calls first: its network, or a wrapper of it
        self.called = []  # (file, line) of the first call, innermost first
        self.stepped = []  # the same of the optimizer's first step
        self.device = ""
        self.unused = []  # names of parameters that no loss depends on: without a gradient at the first step
        self.clips = []  # of each training step: how many, and the sum of their samples
        self.weights = []  # after each step: the sum of all weights

    def __enter__(self):
        module = torch.nn.modules.module
        self.hooks = [
            module.register_module_forward_pre_hook(self.calls),
            optimizers.register_optimizer_step_post_hook(self.steps),
        ]
        return self

    def __exit__(self, *error):
        for hook in self.hooks:
            hook.remove()

    def calls(self, module, inputs):
        """A module is called."""
        if self.model is None:
            self.model = module
            self.called = self.lines()
            self.device = str(next(iter(module.parameters())).device)
        if self.values and module is self.model and module.training and torch.is_grad_enabled():
            waves = inputs[0]
            self.clips.append((len(waves), waves.detach().double().sum().item()))

    def steps(self, optimizer, *rest):
        """An optimizer has stepped."""
        if not self.stepped:
            self.stepped = self.lines()
            named = self.model.named_parameters() if self.model is not None else ()
            self.unused = [name for name, p in named if p.requires_grad and p.grad is None]
        if self.values:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            total = sum(p.detach().double().sum().item() for p in parameters)
            self.weights.append(total)

    def lines(self):
        """The program's lines that are running, innermost first."""
        frame, found = sys._getframe(1), []
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self.folder):
                found.append((file, frame.f_lineno))
            frame = frame.f_back
        return found
