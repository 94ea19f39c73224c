"""How often things were drawn, against their probabilities."""

from scipy.stats import chi2


def chi_square(counts, probabilities):
    """Return the statistic over its limit, which chance exceeds once in a million; rare cells are pooled."""
    draws = sum(counts.values())
    expected = {what: draws * probability for what, probability in probabilities.items()}
    rare = {what for what, count in expected.items() if count < 5}
    cells = [(counts[what], expected[what]) for what in expected if what not in rare]
    cells.append((sum(counts[what] for what in rare), sum(expected[what] for what in rare)))
    assert cells[-1][1] > 0 or cells[-1][0] == 0
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in cells if mean)
    return statistic / chi2.ppf(1 - 1e-6, len(cells))
