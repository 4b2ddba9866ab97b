"""Train with automatic mixed precision: half-precision products, scaled gradients, full-precision weights."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda"
use_amp = True

net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 4)).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cuda", enabled=use_amp, init_scale=1024.0)

data = [torch.randn(32, 16, device=device) for _ in range(5)]
targets = [x[:, :4].argmax(1) for x in data]
loss_fn = nn.CrossEntropyLoss().cuda()

means = []
for epoch in range(8):
    total = 0.0
    for x, target in zip(data, targets, strict=True):
        with torch.autocast(device_type=device, dtype=torch.float16, enabled=use_amp):
            output = net(x)
            loss = loss_fn(output, target)
        if epoch == 0 and total == 0.0:
            print("output", output.dtype, "loss", loss.dtype, "weights", net[0].weight.dtype)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        total += loss.item()
    means.append(total / len(data))
print("norm on", norm.device, "scale", scaler.get_scale())
print("loss fell:", means[-1] < 0.7 * means[0])

with torch.autocast("cuda", dtype=torch.bfloat16):
    x = torch.rand(8, 8, device="cuda")
    product = x @ x
    with torch.autocast("cuda", enabled=False):
        exact = x @ x
    print(
        "product",
        product.dtype,
        "inside disabled",
        exact.dtype,
        "softmax",
        product.softmax(0).dtype,
    )

checkpoint = {
    "net": net.state_dict(),
    "optimizer": optimizer.state_dict(),
    "scaler": scaler.state_dict(),
}
print("saved scale:", checkpoint["scaler"]["scale"])

scaler.scale(net(data[0]).sum() * float("inf")).backward()
before = net[0].weight.clone()
scaler.step(optimizer)
scaler.update()
print("step with inf skipped:", torch.equal(before, net[0].weight), "scale", scaler.get_scale())
