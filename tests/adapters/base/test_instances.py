"""Clients that share an instance (docs/protocol/client.md 1.1), on every runtime, and what a fork leaves of them."""

from __future__ import annotations

import os

import pytest

from mqproto import Message, SendStatus
from mqproto.errors import InvalidName, NoNameServer, StateError
from tests.adapters.cli.test_programs import run, server
from tests.adapters.conftest import World
from tests.adapters.harness import Collector

__all__ = ["server"]


def test_clients_of_one_name_are_one_client(world: World) -> None:
    first = world.producer("first", instance_name="shared")
    second = world.producer("second", instance_name="shared")
    received = Collector()
    consumer = world.consumer(lambda messages, context: received.take(messages), instance_name="shared")
    assert first.client_id == second.client_id == consumer.client_id
    assert first._node is second._node is consumer._node
    assert first.send(Message(world.topic, b"1")).status is SendStatus.SEND_OK
    assert second.send(Message(world.topic, b"2")).status is SendStatus.SEND_OK
    received.wait(2)


def test_by_default_every_client_is_its_own(world: World) -> None:
    first, second = world.producer("same"), world.producer("same")
    assert first.client_id != second.client_id
    for producer in (first, second):
        assert producer.send(Message(world.topic, b"x")).status is SendStatus.SEND_OK


def test_the_others_go_on_when_one_closes(world: World) -> None:
    """PRO-08: whichever comes first or ends first."""
    first = world.producer("first", instance_name="shared")
    collector = world.collect(instance_name="shared")
    second = world.producer("second", instance_name="shared")
    first.send(Message(world.topic, b"1"))
    first.close()
    with pytest.raises(StateError, match="closed"):
        first.send(Message(world.topic, b"never"))
    second.send(Message(world.topic, b"2"))
    collector.wait(2)
    assert set(second._node.producers.by_group) == {"second"}
    again = world.producer("first", instance_name="shared")
    assert again._node is second._node
    again.send(Message(world.topic, b"3"))
    collector.wait(3)
    for producer in (again, second):
        producer.close()
    third = world.producer("third", instance_name="shared")
    third.send(Message(world.topic, b"4"))
    collector.wait(4)


def test_whoever_comes_after_the_last_begins_anew(world: World) -> None:
    first = world.producer("first", instance_name="shared")
    first.close()
    second = world.producer("second", instance_name="shared")
    assert second._node is not first._node
    assert second.send(Message(world.topic, b"1")).status is SendStatus.SEND_OK


def test_one_producer_of_a_group_for_each_instance(world: World) -> None:
    first = world.producer("same", instance_name="shared")
    with pytest.raises(StateError, match="has a producer of group 'same' already"):
        world.producer("same", instance_name="shared")
    assert first.send(Message(world.topic, b"1")).status is SendStatus.SEND_OK


def test_two_clusters_in_one_process(world: World) -> None:
    """The same name, but not the same cluster: Apache's client would send both to the first (docs/protocol/client.md
    CI-7).
    """
    other = world.start(world.runtime.module.Standalone)
    here = world.producer("same", instance_name="shared")
    there = world.start(world.runtime.module.Producer, "same", other.namesrv_address, instance_name="shared")
    assert here.send(Message(world.topic, b"1")).queue_offset == 0
    assert there.send(Message(world.topic, b"1")).queue_offset == 0
    assert here._node is not there._node


def test_a_client_that_cannot_start_leaves_the_others_alone(world: World) -> None:
    producer = world.producer("first", instance_name="shared")
    with pytest.raises(InvalidName):
        world.consumer(lambda messages, context: None, group="bad group!", instance_name="shared")
    nowhere = world.make(
        world.runtime.module.PushConsumer, "g", lambda messages: None, "127.0.0.1:1", instance_name="shared"
    )
    nowhere.subscribe(world.topic)
    with pytest.raises(NoNameServer):
        nowhere.start()
    assert producer.send(Message(world.topic, b"1")).status is SendStatus.SEND_OK


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@needs_fork
@pytest.mark.parametrize("module", ["threaded", "gevent"])
def test_the_child_of_a_fork_gets_a_clear_error_and_may_begin_anew(server: object, module: str) -> None:
    """Neither does the child hang, nor does it disturb what the parent has under way."""
    program = f"""
        import os
        from mqproto.adapters.{module} import Producer, PushConsumer
        from mqproto.errors import StateError
        seen = []
        consumer = PushConsumer("forking", lambda messages: seen.extend(messages) or ConsumeStatus.SUCCESS, namesrv)
        consumer.subscribe("forked")
        with Producer("parent", namesrv) as producer, consumer:
            producer.send(Message("forked", b"before"))
            child = os.fork()
            if child == 0:
                send, subscribe = lambda: producer.send(Message("forked", b"no")), lambda: consumer.subscribe("other")
                for refused in (send, subscribe, consumer.suspend):
                    try:
                        refused()
                    except StateError as error:
                        assert "fork" in str(error) or "closed" in str(error), error
                    else:
                        os._exit(1)
                producer.close()
                consumer.close()
                with Producer("parent", namesrv) as own:
                    own.send(Message("forked", b"child"))
                sys.exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            for number in range(20):
                producer.send(Message("forked", b"after"))
        say("done")
    """
    assert run(server, program) == "done\n"  # type: ignore[arg-type]
