"""Plain twins of first fit, and what lives at once."""


def first_fit(lower, upper, size, alignment, order):
    """Offsets by trying every place that a multiple of the alignment gives after an end of another piece, or 0."""
    offsets = {}
    for piece in order:
        beside = [other for other in offsets if lower[other] < upper[piece] and lower[piece] < upper[other]]
        ends = [offsets[other] + size[other] for other in beside]
        places = sorted({-(-end // alignment[piece]) * alignment[piece] for end in [0, *ends]})
        offsets[piece] = next(
            at
            for at in places
            if all(at + size[piece] <= offsets[o] or offsets[o] + size[o] <= at for o in beside if size[o])
        )
    return [offsets[piece] for piece in range(len(size))]


def most_alive(lower, upper, size, unit=1):
    """The most bytes that live at any moment, sizes rounded up."""
    return max(
        (sum(-(-s // unit) * unit for a, b, s in zip(lower, upper, size, strict=True) if a <= at < b) for at in lower),
        default=0,
    )


def overlaps(lower, upper, size, offsets):
    """Pairs of pieces that live at the same time and share a byte."""
    pieces = range(len(size))
    return [
        (a, b)
        for a in pieces
        for b in pieces
        if a < b
        and max(lower[a], lower[b]) < min(upper[a], upper[b])
        and max(offsets[a], offsets[b]) < min(offsets[a] + size[a], offsets[b] + size[b])
    ]
