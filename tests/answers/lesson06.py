"""Wrong answers to the exercises of lesson 06."""

from answers import edit, given

LOADER = "DataLoader(dataset, batch_size, sampler=sampler)"
RETURN = f"return DistributedDataParallel(model), {LOADER}"
CAME = "chunks[place] = chunks[place] + came if step < ranks - 1 else came"
SENT = "send(chunks[(rank - step) % ranks], right)"


def _in_one_piece(x, rank, ranks, send, recv):
    """Pass the whole tensor around: the right sum, with too many bytes."""
    whole, came = x.clone(), x.clone()
    for _ in range(ranks - 1):
        send(came, (rank + 1) % ranks)
        came = came.clone()
        recv(came, (rank - 1) % ranks)
        whole = whole + came
    return whole


WRONG = {
    "ddp": (
        edit("different weights", RETURN, f"return model, {LOADER}"),
        edit("both processes trained", "sampler=sampler", "shuffle=True"),
        edit("rank 0: ValueError", 'dist.init_process_group("gloo")', "pass"),
        edit(
            "it returned DistributedDataParallel", RETURN, "return DistributedDataParallel(model)"
        ),
        edit("batches of", "dataset, batch_size,", "dataset, 1,"),
        edit(
            "Deal them all out",
            "DistributedSampler(dataset)",
            "DistributedSampler(dataset, num_replicas=4)",
        ),
        given("expected your function", 3),
    ),
    "ring": (
        edit("it hangs: rank 0 waits", SENT, "pass"),
        edit("adds, and which one only", "if step < ranks - 1 else came", ""),
        edit("aren't the sum", "rank - step - 1", "rank - step"),
        edit("Put the chunks back", "return torch.cat(chunks)", "return chunks[0]"),
        edit("expected a tensor", "return torch.cat(chunks)", "return chunks"),
        given("Does each step send a single chunk?", _in_one_piece),
    ),
    "worth": (
        edit("How many times its gradients", "2 * (gpus - 1) / gpus * ", ""),
        edit("which bucket?", "max(last, ", "max(0, "),
        edit(
            "What travels while backward runs", "max(last, all_reduce - backward_ms)", "all_reduce"
        ),
        edit("can't hold more than all", "min(1, bucket_mb / megabytes)", "bucket_mb / megabytes"),
        edit("Only backward hides", "- backward_ms", "- step_ms"),
        edit("count it once", "max(last, all", "last + max(0, all"),
        edit("work at the same time", "return gpus * step_ms", "return step_ms"),
        edit("how long is a step then", "(step_ms + exposed)", "exposed"),
        given("your speedup is of type str", lambda *offer: "2"),
    ),
}
