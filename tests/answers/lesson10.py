"""Wrong answers to the exercises of lesson 10."""

from answers import edit, given, instead

FORWARD = "        output = block(comm.all_gather(shard), x)"
NO_GRAD = "    with torch.no_grad():\n" + FORWARD
GATHER = "    weights = comm.all_gather(shard).requires_grad_()\n"
MEAN = "comm.reduce_scatter(weights.grad) / comm.ranks"
WRONG = {
    "bytes": (
        edit("That is what one GPU alone needs", "optimizer / ranks", "optimizer"),
        edit(
            "Here everything is split",
            "stage >= 1",
            "True",
            "stage >= 2",
            "True",
            "stage >= 3",
            "True",
        ),
        edit("add the bytes of parameters", "8 * parameters", "4 * parameters"),
        edit("the rest stays", "stage >= 1", "stage == 1"),
    ),
    "fsdp": (
        edit("the sum over the ranks", MEAN, "comm.reduce_scatter(weights.grad)"),
        edit(
            "still holds the whole weights",
            NO_GRAD,
            GATHER + "    with torch.no_grad():\n        output = block(weights, x)",
        ),
        edit(
            "or autograd's graph of the first pass",
            NO_GRAD,
            "    output = block(comm.all_gather(shard).requires_grad_(), x)",
        ),
        edit("rest got another output", NO_GRAD, "    output = x"),
        edit("what all_gather gets has the shape (64,)", MEAN, "comm.all_gather(weights.grad)"),
        edit("which collective adds them up", MEAN, "weights.grad.chunk(comm.ranks)[comm.rank]"),
        edit("expected (32,)", MEAN, "weights.grad"),
        edit("rest was never called", "rest(output)", "torch.ones_like(output)"),
        edit("Which gradient goes into", "backward(grad)", "sum().backward()"),
        edit("Did it get the whole weights", "comm.all_gather(shard), x)", "shard, x)"),
        edit("expected two gradients", "return x.grad, ", "return "),
        edit(
            "not all others come",
            MEAN,
            f"({MEAN} if comm.rank else weights.grad.chunk(comm.ranks)[0])",
        ),
        given("expected a function", 3),
    ),
    "plan": (
        instead("FSDP waits for weights", B=(8, 1, 1)),
        instead("fewer texts than FSDP ranks", C=(128, 1, 1)),
        instead("tensor parallelism waits", A=(1, 8, 1)),
        instead("in a pipeline's bubble", A=(1, 1, 8)),
        instead("91 of them are activations", D=(32, 1, 1)),
        instead("over which link, and between", D=(1, 16, 2)),
        instead("job C has 128 GPUs; yours is for 8 × 1 × 1 = 8", C=(8, 1, 1)),
        instead("job D has no plan yet", D=...),
        instead("three whole numbers", A=8),
        given("expected a dict", (8, 1, 1)),
    ),
}
