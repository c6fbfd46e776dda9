"""The leader epoch file of a partition."""

from __future__ import annotations

import pytest

from moldau.errors import DamagedFileError
from moldau.storage.checkpoint_files import decode_epochs, encode_epochs, read_epochs, write_epochs
from moldau.storage.files import RealFiles
from moldau.storage.rules.epoch_cache import EpochCache, EpochStart

EPOCHS = EpochCache((EpochStart(0, 0), EpochStart(3, 17)))


def test_the_text_is_kafkas():
    assert encode_epochs(EPOCHS.entries) == b"0\n2\n0 0\n3 17\n"
    assert decode_epochs(b"0\n2\n0 0\n3 17\n") == EPOCHS


def test_lines_that_contradict_later_ones_give_way():
    assert decode_epochs(b"0\n2\n5 10\n3 4\n") == EpochCache((EpochStart(3, 4),))


@pytest.mark.parametrize(
    "data",
    [
        b"0\n1\n3\n",
        b"0\n1\n3 x\n",
        b"0\n1\n-1 5\n",
        b"0\n1\n1 -5\n",
        b"0\n1\n2147483648 5\n",
        b"0\n1\n1 9223372036854775808\n",
        b"\xff\xfe\n1\n1 5\n",
    ],
)
def test_damage_is_said_to_be_damage(data):
    with pytest.raises(DamagedFileError):
        decode_epochs(data)


def test_epochs_go_through_a_file(tmp_path):
    path = tmp_path / "leader-epoch-checkpoint"

    assert read_epochs(RealFiles(), path) == EpochCache()
    write_epochs(RealFiles(), path, EPOCHS)
    assert read_epochs(RealFiles(), path) == EPOCHS
