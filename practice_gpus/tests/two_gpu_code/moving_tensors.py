"""Move tensors between the CPU and two GPUs, and look at where results end up."""

import torch

assert torch.cuda.is_available(), "this needs CUDA"
print("GPUs:", torch.cuda.device_count())

cpu = torch.device("cpu")
first = torch.device("cuda:0")
second = torch.device("cuda:1")

x_cpu = torch.arange(6, dtype=torch.float32).reshape(2, 3)
x_0 = x_cpu.to(first)
x_1 = x_0.cuda(1)
print("x_cpu", x_cpu.device, "x_0", x_0.device, "x_1", x_1.device)
print("still on the CPU:", not x_cpu.is_cuda)
print(x_1)

y_0 = torch.full_like(x_0, 2.0)
z_0 = x_0 * y_0 + 1
print("z_0 is on", z_0.device, "sum", z_0.sum().item())

w_1 = torch.ones(3, 4, device=second)
print("product on", (x_1 @ w_1).device, (x_1 @ w_1)[0].tolist())

try:
    x_0 + x_1
except RuntimeError as error:
    print("RuntimeError:", error)

try:
    x_0.numpy()
except TypeError as error:
    print("TypeError:", error)

gathered = torch.cat([x_0, x_1.to(first)])
print("gathered", tuple(gathered.shape), gathered.device)

target = torch.empty(2, 3, device=second)
target.copy_(z_0, non_blocking=True)
torch.cuda.synchronize(second)
print("copied", torch.equal(target.cpu(), z_0.cpu()))

print("same object:", x_0.to(first) is x_0, "other object:", x_0.to(second) is x_0)
scale = torch.tensor(10.0)
print("0-dimensional CPU tensors mix:", (x_1 * scale).device)
picked = x_0[torch.tensor([1])]
print("rows picked by a CPU index:", picked.tolist(), picked.device)
print("back as NumPy:", picked.cpu().numpy().sum())
