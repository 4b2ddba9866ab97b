"""Report what tensors, gradients and optimizer states hold on each of two GPUs."""

import gc

import torch
from torch import nn

MIB = 2**20


def report(label):
    """Print allocated and reserved MiB of both devices."""
    held = [
        (torch.cuda.memory_allocated(i) / MIB, torch.cuda.memory_reserved(i) / MIB)
        for i in range(2)
    ]
    print(f"{label:24}" + " | ".join(f"{used:7.2f} / {reserved:6.2f}" for used, reserved in held))


class Activations(nn.Module):
    """A scale and a shift followed by an exponential, without matrix products."""

    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.shift = nn.Parameter(torch.zeros(size))

    def forward(self, x):
        """Return a tensor shaped as x."""
        return (x * self.scale + self.shift).sigmoid()


torch.cuda.init()
report("start")
model = Activations(MIB).to("cuda:1")
report("model on cuda:1")
batch = torch.zeros(8, MIB)
x = batch.to("cuda:1")
report("batch of 8")
y = model(x)
report("forward")
loss = y.mean()
loss.backward()
report("backward")
optimizer = torch.optim.Adam(model.parameters())
optimizer.step()
report("first step of Adam")
del y, loss, x
report("batch deleted")
torch.cuda.empty_cache()
report("cache emptied")
print(
    f"peak on cuda:1 above {torch.cuda.max_memory_allocated('cuda:1') // MIB // 8 * 8} MiB, on cuda:0 "
    f"{torch.cuda.max_memory_allocated(0)}"
)
free, total = torch.cuda.mem_get_info(1)
print("free is less than total:", free < total)
stats = torch.cuda.memory_stats(1)
print("live blocks on cuda:1:", stats["allocation.all.current"])
try:
    torch.empty(2**45, device="cuda:1")
except torch.cuda.OutOfMemoryError as error:
    print(str(error).split(".")[0] + ":", "GPU 1" in str(error))
optimizer.zero_grad()
report("gradients dropped")
del model, optimizer
gc.collect()
torch.cuda.empty_cache()
report("end")
