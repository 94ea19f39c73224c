"""Random graphs with all that matters where ops run again."""

import schedopt


def random_graph(rng, ops):
    """A graph with views, final tensors, control edges, several outputs, and ops that may run only once."""
    builder = schedopt.GraphBuilder("random")
    counts = []
    for op in range(ops):
        producers = rng.choice(op, min(op, int(rng.integers(0, 4))), replace=False).tolist() if op else []
        inputs = [(p, int(rng.integers(counts[p]))) for p in producers if counts[p]]
        count = int(rng.integers(0, 3))
        aliases = [int(rng.integers(len(inputs))) if inputs and rng.random() < 0.3 else -1 for _ in range(count)]
        builder.add_op(
            f"op{op}",
            inputs=inputs,
            control=[int(rng.integers(op))] if op and rng.random() < 0.2 else [],
            outputs=[0 if alias >= 0 else int(rng.integers(1, 100)) for alias in aliases],
            aliases=aliases,
            final=[bool(rng.random() < 0.2) for _ in range(count)],
            runtime=float(rng.integers(0, 5)),
            workspace=int(rng.integers(0, 50)),
            persistent=int(rng.integers(0, 20)),
            once=bool(rng.random() < 0.2),
        )
        counts.append(count)
    return builder.build()
