"""Types of users: registered, recorded by name, and read only where they are registered."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, Flag
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, HttpUrl

from strands_durable import register_type
from strands_durable._records import registered_types
from strands_durable._records.codec import decode, encode, peek
from strands_durable.errors import NotSerializableError, TypeNotRegisteredError, UnreadableError


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Begin with nothing registered, and forget what a test registers."""
    before = dict(registered_types.by_class), dict(registered_types._by_name)
    forget_all()
    yield
    forget_all()
    registered_types.by_class.update(before[0])
    registered_types._by_name.update(before[1])


def forget_all() -> None:
    registered_types.by_class.clear()
    registered_types._by_name.clear()


class Colour(str, Enum):
    RED = "red"
    CRIMSON = "red"


class Rights(Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: Any


@dataclass(frozen=True)
class Price:
    amount: int
    of: Any = None


@dataclass
class Basket:
    prices: list[Price] = field(default_factory=list)
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.total += 1


class Trip(BaseModel):
    model_config = ConfigDict(strict=True)
    city: str
    tags: frozenset[str] = frozenset()


def back(value: Any) -> Any:
    found = decode(encode(value))
    assert type(found) is type(value)
    return found


def test_classes_that_describe_themselves_need_nothing_but_the_class() -> None:
    for cls in (Colour, Rights, Point, Price, Basket, Trip):
        assert register_type(cls) is cls
    assert back(Colour.CRIMSON) is Colour.RED
    assert back(Rights.READ | Rights.WRITE) == Rights.READ | Rights.WRITE
    assert back(Point(1, Colour.RED)) == Point(1, Colour.RED)
    assert back(Trip(city="Rome", tags=frozenset({"a"}))) == Trip(city="Rome", tags=frozenset({"a"}))
    basket = Basket([Price(1, of=Point(1, 2))])
    assert back(basket) == basket
    assert {Colour.RED: {Price(1)}} == decode(encode({Colour.RED: {Price(1)}}))


def test_any_class_can_be_given_a_form() -> None:
    class Matrix:
        def __init__(self, rows: tuple[Any, ...]) -> None:
            self.rows = rows

    register_type(Matrix, name="matrix", to_json=lambda matrix: matrix.rows, from_json=Matrix)
    assert back(Matrix(((1, 2), (3.5, 4)))).rows == ((1, 2), (3.5, 4))
    assert encode(Matrix((1,))) == '{"$":"type","name":"matrix","v":{"$":"tuple","v":[1]}}'


def test_the_form_of_a_tree_of_registered_values_costs_no_more_than_the_tree() -> None:
    """Each value is checked once, not once more for each level above it."""
    made = []

    class Tree:
        def __init__(self, inner: Any) -> None:
            self.inner = inner
            made.append(self)

    register_type(Tree, to_json=lambda tree: tree.inner, from_json=Tree)
    tree = None
    for _ in range(30):
        tree = Tree(tree)
    encode(tree)
    assert len(made) == 60


def test_a_type_that_is_not_registered_is_named_with_what_to_do() -> None:
    register_type(Colour)
    text = encode({"a": [Colour.RED]})
    forget_all()
    with pytest.raises(TypeNotRegisteredError, match=r"'Colour', which is not registered in this process") as caught:
        decode(text)
    assert "strands_durable.register_type" in str(caught.value)
    assert peek(text) == {"a": ['Colour("RED")']}


def test_a_subclass_of_a_registered_type_is_another_type() -> None:
    class Dearer(Price):
        pass

    register_type(Price)
    with pytest.raises(NotSerializableError, match="Dearer"):
        encode(Dearer(1))


@pytest.mark.parametrize(
    ("to_json", "from_json", "reason"),
    [
        (lambda price: price.amount, lambda form: Price(form + 1), "is not what was recorded"),
        (lambda price: price.amount, lambda form: form, "returned a builtins.int"),
        (lambda price: price.amount, lambda form: Price(form.x), "raised AttributeError"),
        (lambda price: price.none, Price, "to_json raised AttributeError"),
        (lambda price: object(), Price, "builtins.object"),
    ],
)
def test_a_form_that_leads_to_something_else_is_refused_at_once(to_json: Any, from_json: Any, reason: str) -> None:
    register_type(Price, to_json=to_json, from_json=from_json)
    with pytest.raises(NotSerializableError, match=reason):
        encode({"price": Price(1)})


def test_a_value_that_cannot_be_in_a_set_any_more_is_refused() -> None:
    class Bag(dict[Any, Any]):
        def __hash__(self) -> int:  # type: ignore[override]
            return 1

    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

    register_type(Bag, to_json=dict, from_json=Bag)
    assert decode(encode({Bag(a=1)})) == {Bag(a=1)}
    register_type(Bag, to_json=dict, from_json=lambda form: Unhashable())
    with pytest.raises(NotSerializableError, match="is not restored unchanged"):
        encode({Bag(a=1)})


def test_attributes_that_are_no_fields_are_not_lost_in_silence() -> None:
    register_type(Basket)
    basket = Basket()
    basket.note = "x"  # type: ignore[attr-defined]
    with pytest.raises(NotSerializableError, match="attributes that are not fields: note"):
        encode(basket)


def test_a_model_that_validates_to_something_else_is_refused() -> None:
    class Loose(BaseModel):
        anything: Any

    class Typed(BaseModel):
        colour: Colour
        link: HttpUrl
        names: set[str]

    register_type(Loose)
    register_type(Typed)
    assert back(Loose(anything=(1, {2}))) == Loose(anything=(1, {2}))
    with pytest.raises(NotSerializableError, match="differs from the model that its own dump validates to"):
        encode(Loose(anything=Colour.RED))
    typed = Typed(colour=Colour.RED, link=HttpUrl("https://example.com"), names={"a", "b", "c"})
    assert back(typed) == typed
    assert '"colour":"red"' in encode(typed)
    assert encode(Typed(colour=Colour.RED, link=typed.link, names={"c", "b", "a"})) == encode(typed), "it has one form"
    with pytest.raises(NotSerializableError, match="Url"):
        encode(typed.link)


def test_a_field_that_is_newer_than_the_record_gets_its_default() -> None:
    @dataclass
    class Order:
        number: int

    register_type(Order, name="order")
    text = encode(Order(7))

    @dataclass
    class Order:  # type: ignore[no-redef]
        number: int
        notes: list[str] = field(default_factory=list)

    register_type(Order, name="order")
    assert decode(text) == Order(7)
    with pytest.raises(UnreadableError, match="has no field colour"):
        decode(text.replace("number", "colour"))


def test_a_class_that_is_defined_again_takes_the_place_of_the_old_one() -> None:
    def cell() -> Any:
        class Colour(Enum):
            RED = 1

        return register_type(Colour)

    old, new = cell(), cell()
    assert type(back(new.RED)) is new
    with pytest.raises(NotSerializableError):
        encode(old.RED)


def test_a_script_that_is_also_imported_may_register_its_types_twice(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from enum import Enum\nfrom strands_durable import register_type\n"
        "@register_type\nclass Colour(Enum):\n    RED = 1\n"
        "if __name__ == '__main__':\n    import shop; print(shop.Colour is Colour)\n"
    )
    ended = subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


def test_wrong_registrations_are_refused_where_they_are_made() -> None:
    register_type(Colour, name="x")
    with pytest.raises(ValueError, match=r"Colour is registered as 'x'; give .*Price another name"):
        register_type(Price, name="x")
    with pytest.raises(ValueError, match="dict can already be recorded"):
        register_type(dict)
    with pytest.raises(TypeError, match="both to_json and from_json, or neither"):
        register_type(Price, to_json=vars)
    with pytest.raises(TypeError, match="pass to_json and from_json"):
        register_type(type("Odd", (), {}))
    with pytest.raises(TypeError, match="takes a class"):
        register_type(Colour.RED)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="printable characters"):
        register_type(Price, name="a\nb")


def test_registering_a_type_imports_no_strands() -> None:
    code = "import sys; from strands_durable import register_type; print('strands' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
