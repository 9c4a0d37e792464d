"""Families of operations: flows of the core that become methods of clients, in every runtime from one list.

An `Operation` is an attribute of a `Family` class. Seen on a family of a client whose methods wait it is a plain method
with the parameters of the flow, seen on one of a client whose methods are coroutines it is a coroutine function with
the same ones; type checkers know both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from mqproto.state.flows.effects import Flow

P = ParamSpec("P")
R = TypeVar("R")


class Waits:
    """Mark of clients whose methods return when the operation has ended."""


class Awaits:
    """Mark of clients whose methods are coroutine functions."""


W = TypeVar("W", bound=Waits | Awaits)


class Performer(Protocol):
    """Client behind a family."""

    def _perform(self, family: str, flow: Callable[[Any], Flow[Any]]) -> Any:
        """Run the flow that `flow` makes of the core's family, in the way of the runtime."""


class Family(Generic[W]):
    """Family of operations; `name` is the attribute of the core that has them."""

    __slots__ = ("_client", "_name")

    def __init__(self, client: Performer, name: str) -> None:
        self._client = client
        self._name = name


class Operation(Generic[P, R]):
    """Operation of a family: a method whose documentation and parameters are those of the core's flow."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Flow[R]]) -> None:
        self._flow = flow
        self.__doc__ = flow.__doc__
        found = inspect.signature(flow)
        #: What `help` and its like show: the result, and not the flow whose result it is.
        self._signature = found.replace(
            parameters=list(found.parameters.values())[1:],
            return_annotation=str(found.return_annotation).removeprefix("Flow[")[:-1],
        )

    @overload
    def __get__(self, family: None, owner: type) -> Self: ...
    @overload
    def __get__(self, family: Family[Waits], owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, family: Family[Awaits], owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, family: Family[Any] | None, owner: type) -> Any:
        if family is None:
            return self
        flow = self._flow

        def method(*arguments: P.args, **settings: P.kwargs) -> Any:
            return family._client._perform(family._name, lambda core: flow(core, *arguments, **settings))

        update_wrapper(method, MethodType(flow, family))
        method.__signature__ = self._signature  # type: ignore[attr-defined]
        return method
