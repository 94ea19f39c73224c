"""What trainers share: turns of given examples."""

import itertools

from schedopt.core.base.parallel import chunks
from schedopt.policies.training.phases import given_batches


def test_each_turn_takes_every_given_example_once_in_another_order():
    examples = [10, 11, 12, 13, 14]

    def turns(epoch, first=0):
        return list(itertools.chain(*given_batches(examples, 0, epoch, chunks(12, 4)[first:])))

    epoch = turns(0)
    assert [len(batch) for batch in given_batches(examples, 0, 0, chunks(12, 4))] == [4, 4, 4]
    assert sorted(epoch[:5]) == sorted(epoch[5:10]) == examples
    assert len(set(epoch[10:])) == 2
    assert epoch[:5] != epoch[5:10] != turns(1)[:5] != epoch[:5]
    assert turns(0, first=1) == epoch[4:]
