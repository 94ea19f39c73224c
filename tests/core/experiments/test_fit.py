"""The search for the largest batch that fits, on functions in place of models."""

import pytest
import schedopt
from schedopt.core.api.fit import LARGEST, LargestBatch, Need, largest_batch

FUNCTIONS = {
    "a line": lambda n: 1000 + 37 * n,
    "steps": lambda n: 1000 + 640 * ((n + 7) // 8),
    "flat, then a line": lambda n: max(5000, 100 + 41 * n),
    "a kink": lambda n: 10 * n if n < 50 else 500 + 90 * (n - 50),
    "a square": lambda n: 10 + n * n,
    "a root": lambda n: int(1000 * n**0.5),
}


@pytest.mark.parametrize("memory", [1, 1037, 1038, 4999, 5000, 5001, 20_000, 100_123])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_the_largest_that_fits(name, memory):
    tried = []

    def need(batch):
        tried.append(batch)
        return Need(FUNCTIONS[name](batch), 0)

    found = largest_batch("", need, memory)
    expected = next(n for n in range(LARGEST) if FUNCTIONS[name](n + 1) > memory)
    assert found.batch == expected
    assert (found.next_peak, found.next_is_proven) == (FUNCTIONS[name](expected + 1), False)
    assert found.peak == (FUNCTIONS[name](expected) if expected else None)
    assert len(tried) == len(set(tried)) < 30
    assert {expected + 1} | ({expected} if expected else set()) <= set(tried), "both were tried"


@pytest.mark.parametrize("error", [schedopt.UsageError, schedopt.ProgramError])
def test_a_size_of_which_there_is_no_model_is_the_end(error):
    def need(batch):
        if batch > 20:
            raise error("size s0 is not from 2 to 20")
        return Need(batch, batch)

    found = largest_batch("", need, 1000)
    assert found == LargestBatch("", 20, 20, None, True, "size s0 is not from 2 to 20")


def test_no_model_with_the_first_batch_is_an_error():
    def need(batch):
        raise schedopt.UsageError("there is no symbolic size 'batch'")

    with pytest.raises(schedopt.UsageError, match="there is no symbolic size 'batch'"):
        largest_batch("", need, 1000)


def test_a_peak_that_does_not_grow_is_an_error():
    with pytest.raises(schedopt.UsageError, match="its peak hardly grows with the batch"):
        largest_batch("", lambda n: Need(500, 500), 1000)
