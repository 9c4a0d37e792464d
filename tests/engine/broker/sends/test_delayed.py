"""Delivery of many delayed messages, of several levels, while clocks change (docs/protocol/store.md 11)."""

from __future__ import annotations

from tests.engine.broker.harness import Peer, World


def delayed(peer: Peer, level: int, body: bytes = b"later", queue: int = 0) -> None:
    assert peer.send(body=body, properties=f"DELAY\x01{level}\x02", e=str(queue)).code == 0


def delivered(world: World, queue_id: int = 0) -> int:
    queue = world.store.find_queue("T", queue_id)
    return 0 if queue is None else queue.next_offset


def turns(world: World) -> list[list[int]]:
    """How many messages came to each queue of T by each entry until nothing is due."""
    found = []
    while (due := world.broker.next_deadline()) is not None and due <= world.now:
        before = [delivered(world, queue) for queue in range(4)]
        world.broker.timer(world.now)
        world.act()
        found.append([delivered(world, queue) - before[queue] for queue in range(4)])
    return [counts for counts in found if any(counts)]


def test_a_backlog_is_delivered_in_turns(world: World, peer: Peer) -> None:
    """After a long stop: a few messages of one level by each entry, the levels one after the other."""
    for n in range(200):
        for level in (1, 2, 3):
            delayed(peer, level, b"%d" % n, level)
    world.close()
    later = World(files=world.files, now=world.now + 3_600_000)
    counts = turns(later)
    assert [sum(column) for column in zip(*counts, strict=True)] == [0, 200, 200, 200]
    assert max(map(sum, counts)) <= 32
    assert [[bool(count) for count in entry] for entry in counts[:3]] == [
        [False, *(n == level for n in range(3))] for level in range(3)
    ]
    assert len(counts) <= 21
    for level in (1, 2, 3):
        assert [message.body for message in later.connect().messages(queue=level, offset=170)] == [
            b"%d" % n for n in range(170, 200)
        ]


def test_long_messages_count_for_more(world: World, peer: Peer) -> None:
    for _ in range(8):
        delayed(peer, 1, bytes(400_000))
    world.now += 1000
    counts = turns(world)
    assert sum(map(sum, counts)) == 8
    assert max(map(sum, counts)) <= 3


def test_a_clock_that_is_set_forward(world: World, peer: Peer) -> None:
    """What is due by the clock comes soon, although nothing else happens."""
    delayed(peer, 18)
    world.advance(45_000)
    world.set_wall(7_200_000)
    world.advance(14_999)
    assert delivered(world) == 0
    world.advance(1)
    assert delivered(world) == 1


def test_looking_at_the_clock_reads_nothing(world: World, peer: Peer) -> None:
    delayed(peer, 18)
    world.close()
    later = World(files=world.files, now=world.now, store={"cold_read_distance": 1})
    later.advance(1000)
    later.hold_jobs = True
    later.advance(600_000)
    assert later.jobs == []
    later.hold_jobs = False
    later.advance(7_200_000)
    assert delivered(later) == 1


def test_a_level_that_is_gone_and_a_clock_that_was_set_back(world: World, peer: Peer) -> None:
    """How long it was to wait is known from when it was stored."""
    delayed(peer, 5, b"five")
    world.close()
    later = World(files=world.files, now=world.now, store={"message_delay_level": "1s 5s"})
    later.set_wall(-3_600_000)
    later.advance(30_000)
    assert delivered(later) == 1


def test_own_levels_with_days() -> None:
    world = World(store={"message_delay_level": "2d 1m"})
    peer = world.connect()
    delayed(peer, 1, b"days")
    delayed(peer, 2, b"minute")
    delayed(peer, 3, b"above the top")
    world.advance(60_000)
    assert [message.body for message in world.connect().messages()] == [b"minute", b"above the top"]
    world.advance(2 * 86_400_000 - 60_001)
    assert delivered(world) == 2
    world.advance(1)
    assert delivered(world) == 3


def test_a_longer_table_after_a_shorter_one() -> None:
    world = World(store={"message_delay_level": "1s 5s"})
    delayed(world.connect(), 2, b"old")
    world.close()
    later = World(files=world.files, now=world.now, store={"message_delay_level": "1s 10m 1h"})
    peer = later.connect()
    delayed(peer, 3, b"new")
    later.advance(5000)
    assert [message.body for message in peer.messages()] == [b"old"], "when it was due"
    later.advance(3_595_000)
    assert delivered(later) == 2
