"""Names of the graphs of data sets."""

from schedopt.datasets.folder import names_of_copies
from schedopt.datasets.layered import LayeredParameters
from schedopt.datasets.recipe import Recipe
from schedopt.datasets.synthetic import SyntheticParameters


def test_numbers_sort_as_they_count():
    assert Recipe(LayeredParameters()).file_name(0) == "layered-500-0001"
    names = [Recipe(SyntheticParameters()).file_name(index, 12_000) for index in range(12_000)]
    assert (names[0], names[-1]) == ("synthetic-00001", "synthetic-12000")
    assert names == sorted(names)


def test_copies_are_named_after_their_original_and_no_two_alike():
    own = names_of_copies(["unet", "a/b", "Unet", "../..", "unet-copy-001", "\x1b[31m" + "x" * 300], 2)
    assert own[0] == ["unet", "unet-copy-001-2", "unet-copy-002"]
    assert own[1] == ["a-b", "a-b-copy-001", "a-b-copy-002"]
    assert own[2] == ["Unet-2", "Unet-2-copy-001", "Unet-2-copy-002"]
    assert [names[0] for names in own[3:5]] == ["graph", "unet-copy-001"]
    names = [name.casefold() for names in own for name in names]
    assert len(set(names)) == len(names)
    assert all(len(name) < 130 and name.isprintable() and "/" not in name for name in names)
