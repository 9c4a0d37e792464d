"""Answers that come twice or late. No network does that to bytes, but peers and what stands between do it to frames.

Owns: which frames of a run of bytes are answers, and which of them are disturbed.
Leaves to others: when bytes arrive (`simulator`).
"""

from __future__ import annotations

from random import Random

from mqproto.codec import FrameSplitter, decode


def disturb(
    data: bytes, twice: float, late: float, late_max: int, random: Random
) -> tuple[bytes, list[tuple[int, bytes]]]:
    """What of a run of whole frames is sent now, and what follows after so many milliseconds.

    `twice` and `late` are the chances of an answer to come once more and to be overtaken, both by up to `late_max`.
    Requests, whose order means something, stay as they are.
    """
    now: list[bytes] = []
    later: list[tuple[int, bytes]] = []
    for frame in FrameSplitter().feed(data):
        whole = len(frame).to_bytes(4, "big") + bytes(frame)
        if not decode(frame).is_response:
            now.append(whole)
            continue
        if random.random() < late:
            later.append((random.randint(1, late_max), whole))
        else:
            now.append(whole)
        if random.random() < twice:
            later.append((random.choice((1, random.randint(1, late_max))), whole))
    return b"".join(now), later
