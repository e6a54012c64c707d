"""`strands-durable demo --ui`: three runs in a new file, a worker, and the web page over them, until Ctrl-C.

One trip is killed with its worker and resumed by the next one, one report is a Graph, and one refund waits for a person.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from ..._dispatch.connect import connect
from .screen import Quiet, Screen
from .stage import Stage, is_over, is_still
from .trip import EXECUTION_ID, FOLDER, have_hotel_answer, is_inside_hotel
from .workers import worker

REFUND, REPORT = "refund-7", "report-1"


def play(folder: Path, screen: Screen) -> None:
    """Make the runs, then serve the page until Ctrl-C."""
    try:
        from ...ui._server import Place, serve
    except ModuleNotFoundError as error:
        from ...ui import missing_extra

        raise missing_extra(error) from error
    os.environ[FOLDER] = str(folder)
    url = f"sqlite:///{folder / 'runs.db'}?worker=off"
    stage = _Runs(folder, Quiet(), connect(url))
    screen.say(f"Three runs are recorded in {folder / 'runs.db'}. Importing Strands takes a moment.")
    with worker(url, folder) as first:
        asyncio.run(stage.until_inside())
        first.kill()
        first.wait()
    screen.say(
        f"{EXECUTION_ID}: worker {first.pid} was killed with SIGKILL inside book_hotel. The next worker resumes it."
    )
    have_hotel_answer(folder)
    with worker(url, folder):
        asyncio.run(stage.rest())
        screen.say(f"{REPORT}: a Graph has written a report.")
        screen.say(f"{REFUND}: an agent waits for a person. Approve it in the inbox, and the worker completes it.")
        screen.say()
        serve(connect(url), Place(), lambda found: screen.say(f"Open {found}\nPress Ctrl-C to stop."))


class _Runs(Stage):
    """The three runs."""

    async def until_inside(self) -> None:
        """Begin the trip; return when it is inside the hotel booking."""
        handle = await self.dispatched()
        await self.followed(handle, {}, is_inside_hotel)

    async def rest(self) -> None:
        """See the trip to its end and the report to its own; leave the refund at its question."""
        from .office import market_report, refund_desk

        refund = await refund_desk.on(self._backend).dispatch_async("Order A-1017 arrived broken.", execution_id=REFUND)
        report = await market_report.on(self._backend).dispatch_async("How are lamps doing?", execution_id=REPORT)
        trip = await self._backend.get(EXECUTION_ID)
        await self.followed(trip, {}, is_still)
        await trip.respond({question.id: "yes" for question in await trip.interrupts()}, by="the demo")
        for handle in (trip, report):
            await self.followed(handle, {}, is_over)
        await self.followed(refund, {}, is_still)
