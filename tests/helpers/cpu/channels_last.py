# SPDX-License-Identifier: MIT
"""Convolutions that take every path of the device cpu through channels_last arrays."""

from __future__ import annotations

from tests.helpers.cases import Case

SHAPES = (
    # panels of 4, 2 and 1 vectors, the last one not full; rows that are cut into tiles of every width
    *(Case(f"{c} to {k}", (2, c, 5, width), (k, c, 3, 3), padding=(1, 1))
      for c, k, width in ((16, 16, 53), (17, 33, 7), (3, 64, 14), (40, 117, 23), (20, 9, 12), (64, 32, 31),
                          (9, 48, 2))),
    Case("few results", (2, 33, 6, 9), (5, 33, 3, 3), padding=(1, 1)),
    Case("one result", (1, 16, 9, 30), (1, 16, 3, 3), padding=(1, 1)),
    Case("one channel", (2, 1, 9, 30), (16, 1, 5, 3), padding=(2, 1)),
    Case("few of both", (2, 3, 8, 9), (5, 3, 3, 3), padding=(1, 1)),
    Case("1x1", (2, 20, 9, 11), (24, 20, 1, 1)),
    Case("1x1 in steps", (2, 20, 9, 11), (24, 20, 1, 1), (2, 3)),
    Case("1x1 in a frame", (2, 20, 9, 11), (24, 20, 1, 1), padding=(1, 1)),
    Case("1x1 of several bands", (3, 16, 40, 33), (20, 16, 1, 1)),
    Case("without padding", (2, 18, 81, 66), (20, 18, 3, 2), (2, 1)),
    # bands of 11 images forward and of 20 in the filter gradient, the last ones smaller; filters in pieces
    Case("small images of many channels", (41, 64, 4, 3), (81, 64, 3, 3), padding=(1, 1)),
    Case("small images in steps", (19, 72, 5, 5), (72, 72, 3, 3), (2, 2), (1, 1)),
    Case("small images as they lie", (19, 17, 5, 6), (64, 17, 3, 3)),
    Case("small images of few channels", (23, 10, 4, 5), (20, 10, 3, 3), padding=(1, 1)),
    Case("filters in pieces", (1, 160, 5, 6), (72, 160, 3, 3), padding=(1, 1)),
    Case("several bands", (2, 24, 90, 66), (20, 24, 3, 3), padding=(1, 1)),
    Case("stride", (2, 18, 15, 13), (33, 18, 3, 3), (2, 3), (1, 1)),
    Case("taps that reach no pixel", (2, 18, 9, 10), (17, 18, 1, 2), (3, 3)),
    Case("dilation and a pad beyond the filter", (1, 10, 9, 8), (12, 10, 2, 2), (1, 2), (3, 4), (2, 1)),
    # read in place, with columns of their own where taps read the padding: filters in pieces, images together, a
    # band of one column, rows that no tap reaches
    Case("wide", (2, 64, 21, 40), (72, 64, 3, 3), padding=(1, 1)),
    Case("wide images together", (5, 160, 3, 36), (72, 160, 3, 3), padding=(1, 1)),
    Case("one column more than a band", (1, 16, 4, 1025), (16, 16, 3, 3), padding=(1, 1)),
    Case("wide, in steps", (2, 18, 23, 77), (33, 18, 3, 3), (2, 3), (1, 1)),
    Case("wide, five across in steps", (1, 32, 21, 140), (16, 32, 5, 5), (2, 2), (2, 2)),
    Case("wide, dilated", (1, 16, 19, 75), (20, 16, 3, 3), (1, 1), (2, 2), (2, 2)),
    Case("wide, two by two", (1, 16, 9, 40), (16, 16, 2, 2), padding=(1, 1)),
    Case("wide, in groups", (2, 32, 9, 40), (32, 16, 3, 3), padding=(1, 1), groups=2),
    Case("wide, pad beyond the filter", (1, 16, 9, 40), (16, 16, 2, 2), padding=(3, 1)),
    Case("in groups", (2, 36, 6, 7), (66, 12, 3, 3), padding=(1, 1), groups=3),
    Case("in small groups", (2, 12, 6, 7), (8, 3, 3, 3), padding=(1, 1), groups=4),
    Case("depthwise", (2, 37, 9, 21), (37, 1, 3, 3), (1, 1), (1, 1), groups=37),
    Case("depthwise in steps", (2, 16, 9, 21), (16, 1, 5, 5), (2, 2), (2, 2), groups=16),
    Case("two channels of a group to one", (2, 32, 9, 7), (16, 2, 3, 3), padding=(1, 1), groups=16),
    Case("three results of two channels", (2, 14, 9, 11), (21, 2, 3, 3), padding=(1, 1), groups=7),
    Case("small groups in steps", (2, 16, 9, 11), (20, 4, 3, 3), (2, 2), (1, 1), groups=4),
    Case("many small groups", (2, 36, 12, 17), (36, 4, 3, 3), padding=(1, 1), groups=9),
    Case("eight results of a channel", (2, 5, 9, 11), (40, 1, 3, 3), padding=(1, 1), groups=5),
    Case("five groups", (2, 15, 9, 7), (10, 3, 2, 3), padding=(1, 1), groups=5),
    Case("groups of few and many", (2, 6, 9, 7), (18, 2, 3, 3), padding=(1, 1), groups=3),
    Case("depthwise, seven across", (1, 32, 9, 27), (32, 1, 3, 7), (1, 1), (1, 3), groups=32),
    Case("depthwise of many taps", (1, 16, 15, 9), (16, 1, 13, 13), padding=(6, 6), groups=16),
    Case("depthwise, dilated", (1, 16, 9, 27), (16, 1, 3, 5), (1, 1), (2, 4), (2, 2), groups=16),
    Case("depthwise, in steps across alone", (1, 32, 9, 13), (32, 1, 5, 5), (1, 3), (1, 0), groups=32),
    Case("depthwise, two results each", (2, 6, 9, 7), (12, 1, 3, 3), (1, 1), (1, 1), groups=6),
)
