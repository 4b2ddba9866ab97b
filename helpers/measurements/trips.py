"""What a recording says about lesson 02's question: a matrix goes to the device, is multiplied once, and comes back."""


def trips(recording):
    """Yield (label, ingredients, times) for each device of `recording` whose products (float32) and copies are known.

    ingredients: keyword arguments for a model, from the same recording: price_ms of starting an operation, copies_ms of
    the smallest copy there and back (0 on a CPU, which copies nothing), tflop_per_s and gb_per_s, the best rate of a
    product and that of the device's memory, link_gb_per_s, the best rate of a copy (the harmonic mean of both ways; None on
    a CPU). times: {n: milliseconds} that an n × n product took, and the copies of one such matrix both ways.
    """
    for device in recording.devices:
        products = {
            row["size"]: row
            for row in recording.rows("matmul", device)
            if row["dtype"] == "float32"
        }
        started = [
            row["time_us"] / 1e3
            for row in recording.rows("launch", device)
            if row["way"] == "queued"
        ]
        gb_per_s = recording.memory_gb_per_s(device)
        ways = _copies(recording, device)
        complete = recording.devices[device]["kind"] == "cpu" or len(ways) == 2
        times = {
            n: row["time_ms"] + sum(way[4 * n * n]["time_ms"] for way in ways)
            for n, row in products.items()
            if all(4 * n * n in way for way in ways)
        }
        if times and complete and started and gb_per_s:
            rates = [max(row["gb_per_s"] for row in way.values()) for way in ways]
            yield (
                recording.label_of(device),
                {
                    "price_ms": started[0],
                    "copies_ms": sum(way[min(way)]["time_ms"] for way in ways),
                    "tflop_per_s": max(row["tflop_per_s"] for row in products.values()),
                    "gb_per_s": gb_per_s,
                    "link_gb_per_s": len(rates) / sum(1 / rate for rate in rates)
                    if rates
                    else None,
                },
                times,
            )


def _copies(recording, device):
    """Rows by bytes, one dict for each direction, from pageable memory."""
    rows = [row for row in recording.rows("copies", device) if not row["pinned"]]
    ways = {
        direction: {row["bytes"]: row for row in rows if row["direction"] == direction}
        for direction in ("h2d", "d2h")
    }
    return [way for way in ways.values() if way]
