"""What crosses between the jailed processes and the judge, and what does not."""

import collections
import datetime
import json
import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tossup.verifiers.code.codec import MAX_COLLISIONS, MAX_DEPTH, CodecError, Opaque
from tossup.verifiers.code.decode import Decoder
from tossup.verifiers.code.encode import Encoder
from tossup.verifiers.code.library import install

install()


def crossed(*values, shared=False, tree=None):
    text = json.dumps(Encoder(shared=shared).document(values))
    return Decoder(tree=not shared if tree is None else tree).document(json.loads(text))


atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
keys = st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers(), st.text())
values = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.sets(keys, max_size=3)
        | st.frozensets(keys, max_size=3)
    ),
    max_leaves=20,
)


def same(a, b):
    """Equal, with equal types all the way down: True is not 1 here, and 0.0 is not -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a.items(), b.items(), strict=True))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return a == b


@given(values)
@settings(max_examples=200, deadline=None)
def test_plain_data_comes_out_as_it_went_in(value):
    for shared in (False, True):
        (back,) = crossed(value, shared=shared)
        assert same(value, back)


@given(
    st.recursive(
        st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30
    )
)
@settings(max_examples=100, deadline=None)
def test_a_document_that_was_changed_anywhere_never_ends_the_reader(value):
    text = json.dumps(Encoder().document([value, {1, (2, "x")}, b"ab", 1 << 90, Fraction(1, 3)]))
    for i in range(0, len(text), max(1, len(text) // 25)):
        for damage in ("", "9", '"', "[", '{"t":', "null"):
            try:
                document = json.loads(text[:i] + damage + text[i + 1 :])
            except ValueError:
                continue
            try:
                Decoder(tree=True).document(document)
            except CodecError:
                continue


@pytest.mark.parametrize(
    "value",
    [
        collections.deque([1, [2]], 5),
        collections.Counter("abca"),
        collections.OrderedDict([("b", 1), ("a", 2)]),
        collections.defaultdict(list, {1: [2]}),
        range(3, 30, 4),
        Decimal("1.10"),
        Fraction(-7, 3),
        datetime.date(2024, 2, 29),
        datetime.datetime(2024, 2, 29, 12, 30, 1, 5),
        datetime.timedelta(days=-1, microseconds=3),
        ...,
        int,
        float("inf"),
        1 << 5000,
        -(1 << 62),
    ],
)
def test_library_types_cross_as_themselves(value):
    (back,) = crossed(value)
    assert back == value
    assert type(back) is type(value)


def test_nan_and_views():
    (nan, keys_view, items) = crossed(float("nan"), {1: 2}.keys(), {1: 2}.items())
    assert nan != nan
    assert keys_view == {1}
    assert items == {1: 2}.items()


class AlwaysEqual(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class Loud(list):
    def __iter__(self):
        raise AssertionError("an override was called")

    __len__ = __getitem__ = __iter__


def test_a_subclass_with_its_own_comparison_stays_and_one_without_travels_as_its_base():
    stays, loud, point = crossed(AlwaysEqual(3), Loud([1, 2]), collections.namedtuple("P", "x y")(1, 2))
    assert isinstance(stays, Opaque)
    assert stays != 3
    assert loud == [1, 2]
    assert type(loud) is list
    assert point == (1, 2)
    assert type(point) is tuple


def test_unknown_objects_and_functions_are_opaque():
    for back in crossed(object(), len, lambda: 0, (x for x in ()), AlwaysEqual):
        assert isinstance(back, Opaque)


def test_aliases_and_cycles_survive_only_where_they_are_asked_for():
    row = [0]
    grid, loop = [row, row], []
    loop.append(loop)
    (back, again) = crossed(grid, loop, shared=True)
    assert back[0] is back[1]
    assert again[0] is again
    (tree,) = crossed(grid)
    assert tree == [[0], [0]]
    assert tree[0] is not tree[1]
    with pytest.raises(CodecError, match="deeper"):
        crossed(loop)


def test_the_judge_refuses_aliases_that_would_make_a_walk_exponential():
    bomb = [1]
    for _ in range(60):
        bomb = [bomb, bomb]
    document = Encoder(shared=True).document([bomb])
    with pytest.raises(CodecError):
        Decoder(tree=True).document(document)


def test_depth_is_bounded_at_both_ends():
    value, document = [], []
    for _ in range(MAX_DEPTH + 5):
        value, document = [value], [document]
    with pytest.raises(CodecError):
        Encoder().document([value])
    with pytest.raises(CodecError):
        Decoder().document([[document]])


def test_sets_of_colliding_elements_are_refused_before_they_are_built():
    colliding = [{"i": format(i * (2**61 - 1), "x")} for i in range(1, 40_000)]
    for form in ({"s": colliding}, {"z": colliding}, {"d": [[k, 0] for k in colliding]}):
        with pytest.raises(CodecError, match="hash"):
            Decoder(tree=True).document([[form]])
    few = [i * (2**61 - 1) for i in range(1, MAX_COLLISIONS)]
    assert crossed(set(few)) == [set(few)]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        [[{"q": 1}]],
        [[{"t": 5}]],
        [[{}]],
        [[{"t": [], "s": []}]],
        [[{"r": 0}]],
        [[{"r": "x"}]],
        [[{"i": "zz"}]],
        [[{"b": "0"}]],
        [[{"o": "Node"}]],
        [[{"x": ["nothing", 1]}]],
        [[{"x": ["decimal", "1e999999999"]}]],
        [[{"x": ["fraction", [1, 0]]}]],
        [[{"x": ["range", ["a"]]}]],
        [[{"x": ["date", [0, 0, 0]]}]],
        [[{"s": [[1]]}]],
        [[{"d": [[1]]}]],
        [[{"c": ["1"] * 3}]],
        [[{"n": ["<i8", [1]]}]],
        [[1], [["x", 1]]],
    ],
)
def test_malformed_documents_raise_one_error(document):
    with pytest.raises(CodecError):
        Decoder(tree=True).document(document)


class Node:
    def __init__(self, value, rest=None):
        self.value, self.next = value, rest

    def total(self):
        return self.value + (self.next.total() if self.next else 0)


def test_objects_of_shared_classes_cross_by_value_however_long_their_chain():
    head = None
    for i in range(3000):
        head = Node(i, head)
    head.next.next.back = head
    text = json.dumps(Encoder(shared=True, classes={Node: "Node"}).document([head]))
    (back,) = Decoder(classes={"Node": Node}).document(json.loads(text))
    assert back.value == 2999
    assert back.next.next.back is back
    length = 0
    while back:
        back, length = back.next, length + 1
    assert length == 3000


def test_a_field_cannot_hide_a_method_of_a_trusted_class():
    document = [[{"o": "Node"}], [["value", 1], ["total", 5]]]
    with pytest.raises(CodecError, match="total"):
        Decoder(classes={"Node": Node}).document(document)


def test_changes_made_in_place_come_back_to_the_same_objects():
    inner = [1]
    values = [inner, {"k": inner}, {1, 2}, collections.deque([1]), Node([5])]
    here = Encoder(shared=True, classes={Node: "Node"})
    document = json.loads(json.dumps(here.document([values])))
    there = Decoder(classes={"Node": Node})
    ((a, b, c, d, e),) = there.document(document)
    a.append(2)
    b["new"] = a
    c.clear()
    d.appendleft(0)
    e.value.append(6)
    back = Encoder(shared=True, classes={Node: "Node"})
    back.adopt(there.table)
    changes = json.loads(json.dumps([[n, back.contents(n)] for n, v in enumerate(there.table) if v is not None]))
    result = json.loads(json.dumps(back.document([a, [b]])))
    reader = Decoder(classes={"Node": Node})
    reader.table = here.table
    for number, contents in changes:
        reader.refill(number, contents)
    assert inner == [1, 2]
    assert values[1] == {"k": inner, "new": inner}
    assert values[1]["new"] is inner
    assert values[2] == set()
    assert values[3] == collections.deque([0, 1])
    assert values[4].value == [5, 6]
    one, (two,) = reader.document(result)
    assert one is inner
    assert two is values[1]


def test_a_container_cannot_change_its_type():
    here = Encoder(shared=True)
    here.document([[1]])
    reader = Decoder()
    reader.table = here.table
    with pytest.raises(CodecError):
        reader.refill(0, ["value", [[{"d": []}]]])
    with pytest.raises(CodecError):
        reader.refill(7, ["value", [[[]]]])


def test_numpy_values_become_plain_for_the_judge_and_real_where_numpy_is_asked_for():
    np = pytest.importorskip("numpy")
    values = [np.int64(5), np.float64(0.5), np.bool_(True), np.array([[1, 2], [3, 4]])]
    document = json.loads(json.dumps(Encoder().document(values)))
    plain = Decoder(tree=True).document(document)
    assert plain[:3] == [5, 0.5, True]
    assert type(plain[0]) is int
    assert isinstance(plain[3], Opaque)
    real = Decoder(numpy=np).document(document)
    assert type(real[0]) is np.int64
    assert (real[3] == values[3]).all()
    with pytest.raises(CodecError):
        Decoder(numpy=np).document([[{"n": ["O", 5]}]])
    assert isinstance(crossed(np.array([object()]))[0], Opaque)
