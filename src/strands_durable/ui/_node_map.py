"""A Graph or Swarm as a picture: its nodes as boxes with their states, from left to right, and the edges between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .._records.views import CallSummary, StepSummary
from ._wording import line, slug

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 168, 52, 56, 20, 8
_NAME_LENGTH = 19


@dataclass(frozen=True, kw_only=True)
class Box:
    """A node."""

    name: str
    full_name: str
    state: str
    style: str
    x: int
    y: int
    width: int = _WIDTH
    height: int = _HEIGHT


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """An edge, or the order in which nodes have run."""

    path: str
    is_conditional: bool


@dataclass(frozen=True, kw_only=True)
class NodeMap:
    """What the template draws."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    width: int
    height: int
    is_order: bool
    """True if arrows are the order in which nodes have run, because the edges are not on record."""


def node_map_of(call: CallSummary, nodes: Sequence[str] = (), edges: Sequence[str] = ()) -> NodeMap | None:
    """Return the picture of a call of a Graph or Swarm; None for an agent, or while no node is known.

    ``edges`` are as in a spec: ``"a -> b"``, with ``" if"`` at the end of those that have a condition.
    """
    visits = [step for step in call.steps if step.kind == "node"]
    names = list(dict.fromkeys([*nodes, *(step.name for step in visits)]))
    if call.kind == "agent" or not names:
        return None
    known = [found for found in map(_edge, edges) if found[0] in names and found[1] in names]
    is_order = not known
    links = known or _in_order(visits)
    columns = _columns(names, [(start, end) for start, end, _ in links])
    spots = _spots(columns)
    height = max(len(column) for column in columns)
    has_return = any(spots[end][0] <= spots[start][0] for start, end, _ in links)
    return NodeMap(
        title=line(call.member),
        boxes=tuple(_box(name, visits, spots[name]) for name in names),
        arrows=tuple(
            Arrow(path=_path(spots[start], spots[end]), is_conditional=is_if)
            for start, end, is_if in links
            if start != end
        ),
        width=len(columns) * (_WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN,
        height=height * (_HEIGHT + _GAP_Y) - _GAP_Y * (not has_return) + 2 * _MARGIN,
        is_order=is_order and bool(links),
    )


def _edge(text: str) -> tuple[str, str, bool]:
    start, _, end = text.partition(" -> ")
    return start, end.removesuffix(" if"), end.endswith(" if")


def _in_order(visits: list[StepSummary]) -> list[tuple[str, str, bool]]:
    """Return which node ran right after which: it began when the other had ended, and none ran wholly in between."""
    found: dict[tuple[str, str], None] = {}
    for step in visits:
        before = [each for each in visits if _is_before(each, step)]
        for each in before:
            if not any(_is_before(each, other) for other in before):
                found[each.name, step.name] = None
    return [(start, end, False) for start, end in found]


def _is_before(one: StepSummary, other: StepSummary) -> bool:
    return one.ended_at is not None and other.started_at is not None and one.ended_at <= other.started_at


def _columns(names: list[str], links: list[tuple[str, str]]) -> list[list[str]]:
    """Return nodes by column: each after those that lead to it. An edge back to an earlier node moves nothing."""
    column = dict.fromkeys(names, 0)
    order = {name: index for index, name in enumerate(_sorted(names, links))}
    for name in order:
        for start, end in links:
            if start == name and order[start] < order[end]:
                column[end] = max(column[end], column[name] + 1)
    used = sorted(set(column.values()))
    return [[name for name in names if column[name] == each] for each in used]


def _sorted(names: list[str], links: list[tuple[str, str]]) -> list[str]:
    """Return nodes so that edges lead forward where they can."""
    left, found = list(names), []
    while left:
        free = [
            name for name in left if not any(end == name and start in left and start != name for start, end in links)
        ]
        taken = free or left[:1]
        found += taken
        left = [name for name in left if name not in taken]
    return found


def _spots(columns: list[list[str]]) -> dict[str, tuple[int, int]]:
    tallest = max(len(column) for column in columns)
    found = {}
    for across, column in enumerate(columns):
        top = (tallest - len(column)) * (_HEIGHT + _GAP_Y) // 2
        for down, name in enumerate(column):
            found[name] = (_MARGIN + across * (_WIDTH + _GAP_X), _MARGIN + top + down * (_HEIGHT + _GAP_Y))
    return found


def _path(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return a curve from the right side of a box to the left side of another; backwards, below both."""
    if end[0] > start[0]:
        x1, y1, x2, y2 = start[0] + _WIDTH, start[1] + _HEIGHT // 2, end[0] - 5, end[1] + _HEIGHT // 2
        middle = (x1 + x2) // 2
        return f"M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"
    x1, y1, x2, y2 = start[0] + _WIDTH // 2, start[1] + _HEIGHT, end[0] + _WIDTH // 2, end[1] + _HEIGHT + 5
    low = max(y1, y2) + _GAP_Y
    return f"M{x1} {y1} C{x1} {low} {x2} {low} {x2} {y2}"


def _box(name: str, visits: list[StepSummary], spot: tuple[int, int]) -> Box:
    mine = [step for step in visits if step.name == name]
    state = mine[-1].state if mine else "not run"
    times = len({step.key for step in mine})
    shown = line(name)
    return Box(
        name=shown if len(shown) <= _NAME_LENGTH else f"{shown[: _NAME_LENGTH - 1]}…",
        full_name=shown,
        state=f"{state}, {times} visits" if times > 1 else state,
        style=slug(state),
        x=spot[0],
        y=spot[1],
    )
