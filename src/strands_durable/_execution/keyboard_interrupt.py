"""Ctrl-C in a script that calls a durable agent: the first one stops after the current step, the second one at once.

Strands runs `agent(...)` in a thread, and a KeyboardInterrupt in the main thread would wait there until the agent has ended. So
we handle SIGINT during such a call if it has no other handler: a user's handler stays in place, and so does asyncio's. A call
from another thread is left alone, because Python handles signals only in the main thread.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from .._calls.control import ExecutionControl, ExecutionReleasedError

_listening: ContextVar[_Keyboard | None] = ContextVar("strands_durable_keyboard", default=None)
_own_types: dict[type, type] = {}


class Interrupted(ExecutionReleasedError):
    """Ctrl-C was pressed: no more steps start. The caller sees a KeyboardInterrupt."""

    def __str__(self) -> str:
        return "The call was stopped with Ctrl-C."


class _Keyboard:
    """Waits for Ctrl-C during one call."""

    def __init__(self) -> None:
        self.is_pressed = False
        self._control: ExecutionControl | None = None
        self._advice = "Run the script again to resume."
        self._cancel: Callable[[], Any] = lambda: None

    def hold(self, control: ExecutionControl, is_made_up: bool) -> None:
        """Remember the execution that the call belongs to; called in the thread that runs the agent."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        self._cancel = lambda: None if task is None else loop.call_soon_threadsafe(task.cancel)
        name = repr(control.execution_id)
        self._advice = f"Run the script again to resume execution {name} at its next step."
        if is_made_up:
            self._advice = f"Its id is {name}: run the script with Durability(..., execution_id={name}) to resume it."
        self._control = control
        if self.is_pressed:
            self._halt()

    def press(self, *_: Any) -> None:
        """Start no more steps; the next Ctrl-C stops at once."""
        self.is_pressed = True
        self._halt()
        with suppress(ValueError):
            signal.signal(signal.SIGINT, self._press_again if _is_interactive() else signal.SIG_DFL)
        _print(
            f"\nStopping after the current step. {self._advice} Ctrl-C again stops at once and leaves the step in doubt."
        )

    def _press_again(self, signum: int, frame: Any) -> None:
        """In an interactive session, which must survive: stop what can be stopped, and return to the prompt."""
        with suppress(RuntimeError):  # its loop is closed: it has just ended
            self._cancel()
        signal.default_int_handler(signum, frame)

    def _halt(self) -> None:
        if self._control is not None:
            self._control.stop(Interrupted())

    def interrupt(self) -> KeyboardInterrupt:
        """Return what the caller sees."""
        return KeyboardInterrupt(f"Stopped with Ctrl-C. {self._advice}")


def hold(control: ExecutionControl, *, is_made_up: bool) -> None:
    """Let Ctrl-C stop the execution of the current call, if that call listens for Ctrl-C."""
    keyboard = _listening.get()
    if keyboard is not None:
        keyboard.hold(control, is_made_up)


def watch(subject: Any, is_durable: Callable[[Any], bool]) -> None:
    """Listen for Ctrl-C during the sync calls of an object: it gets a class of its own, as Python looks up calls there."""
    if callable(subject) and type(subject) not in _own_types.values():
        with suppress(Exception):  # a class may refuse to be extended: its calls end with Ctrl-C as those of Strands do
            subject.__class__ = _own_type(type(subject), is_durable)


def _own_type(kind: Any, is_durable: Callable[[Any], bool]) -> type:
    """Return a class that is like another one but listens; other objects of that class keep it as it is."""
    if kind not in _own_types:

        def call(self: Any, *args: Any, **given: Any) -> Any:
            called = super(own, self).__call__
            if not is_durable(self):
                return called(*args, **given)
            with _listened():
                return called(*args, **given)

        names = ("__module__", "__qualname__", "__doc__")
        facts = {"__call__": functools.wraps(kind.__call__)(call), **{name: getattr(kind, name) for name in names}}
        own = type(kind)(kind.__name__, (kind,), facts)
        _own_types[kind] = own
    return _own_types[kind]


@contextmanager
def _listened() -> Iterator[None]:
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    keyboard = _Keyboard()
    try:
        signal.signal(signal.SIGINT, keyboard.press)
    except ValueError:  # the main thread of an interpreter that is not the main one
        yield
        return
    token = _listening.set(keyboard)
    try:
        yield
    except Interrupted:
        raise keyboard.interrupt() from None
    finally:
        _listening.reset(token)
        if signal.getsignal(signal.SIGINT) in (keyboard.press, keyboard._press_again, signal.SIG_DFL):
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if keyboard.is_pressed:  # the current step was the last one
        raise keyboard.interrupt()


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or "ipykernel" in sys.modules


def _print(text: str) -> None:
    with suppress(Exception):  # the signal may arrive in the middle of another write to stderr
        print(text, file=sys.stderr, flush=True)
