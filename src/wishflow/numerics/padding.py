"""Sizes that arrays are padded to, so that few programs are compiled."""

from __future__ import annotations


def size_class(n: int) -> int:
    """The number of rows that n rows are padded to: 32, 40, 48, 56, 64, 80, 96, … (eight classes for every factor of
    four).

    Few classes mean few compiled programs; a step of at most 25 % wastes little work.
    """
    size = 32
    while size < n:
        size += max(8, 1 << (size.bit_length() - 3))
    return size
