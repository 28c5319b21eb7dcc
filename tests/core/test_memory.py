"""The verbs of memories, on small kinds of our own; growing memories against plain lists."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, replace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.utils import _pytree as pytree

from recollect.core.growing import Growing
from recollect.core.memory import Both, Fixed, Layers, Memory, Nothing, grows, hint, pad_axis, static
from recollect.layers.positions import Position


@dataclass(frozen=True, eq=False, kw_only=True)
class State(Memory):
    value: Tensor  # (B, 2)
    count: Tensor  # (B,) int
    done: Tensor  # (B,) bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Written(Fixed):
    source: Tensor  # (B, 2)


@dataclass(frozen=True, eq=False, kw_only=True)
class Nested(Memory):
    state: State
    written: Written
    pair: tuple[Tensor, Tensor]
    size: int = static(0)
    quick: bool = hint()


@dataclass(frozen=True, eq=False, kw_only=True)
class Words(Growing):
    words: Tensor = grows(1)  # (B, S)
    marks: Tensor = grows(1)  # (B, S, 2)


def state(rows=3):
    value = torch.arange(2.0 * rows).reshape(rows, 2)
    return State(value=value, count=torch.arange(rows), done=torch.arange(rows) % 2 == 0)


def nested(rows=3, **plain):
    a = torch.arange(float(rows))
    return Nested(state=state(rows), written=Written(source=torch.ones(rows, 2) * a[:, None]), pair=(a, -a), **plain)


def words(*rows, **plain):
    """Build a growing memory from lists of numbers; blank slots hold -1, which no one may read."""
    longest = max(map(len, rows), default=0)
    table = torch.tensor([[*row, *[-1] * (longest - len(row))] for row in rows], dtype=torch.long)
    table = table.reshape(len(rows), longest)
    length = torch.tensor([len(row) for row in rows], dtype=torch.long)
    return Words(words=table, marks=torch.stack([table, table], 2) / 10, length=length, **plain)


def lists(memory):
    """Read a growing memory back as lists."""
    settled = memory.settled()
    return [row[:n].tolist() for row, n in zip(settled.words, settled.kept, strict=True)]


def storages(memory):
    return {t.untyped_storage().data_ptr() for t in memory.tensors().values()}


# ---- select and reorder ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([2, 0, 0], [2, 0, 0]),
        (torch.tensor([1]), [1]),
        (torch.tensor([2, 1], dtype=torch.int32), [2, 1]),
        (torch.tensor([True, False, True]), [0, 2]),
        ([False, True, False], [1]),
        (slice(1, None), [1, 2]),
        (slice(None, None, 2), [0, 2]),
        (range(2), [0, 1]),
        ([], []),
    ],
    ids=["list", "tensor", "int32", "mask", "list of bool", "slice", "strides", "range", "none"],
)
def test_select_takes_rows_of_every_part(rows, expected):
    chosen = nested().select(rows)
    assert chosen.state.count.tolist() == expected
    assert chosen.state.value[:, 0].tolist() == [2.0 * b for b in expected]
    assert chosen.state.done.tolist() == [b % 2 == 0 for b in expected]
    assert chosen.written.source[:, 0].tolist() == expected
    assert [t.tolist() for t in chosen.pair] == [expected, [-b for b in expected]]
    assert chosen.batch_size == len(expected)


@pytest.mark.parametrize("rows", [slice(None), slice(0, 2), [0, 1, 2], torch.tensor([True, True, True])], ids=str)
@pytest.mark.parametrize(
    "memory", [state(), nested(), words([1, 2], [3], [4, 5]).reserve(4)], ids=["state", "nested", "room"]
)
def test_select_is_a_copy(memory, rows):
    assert not storages(memory) & storages(memory.select(rows))


def test_rows_beyond_the_batch_are_an_error():
    with pytest.raises(IndexError):
        state().select([3])


def test_reorder_moves_all_but_fixed_parts():
    moved = nested().reorder([2, 2, 0])
    assert moved.state.count.tolist() == [2, 2, 0]
    assert moved.pair[0].tolist() == [2, 2, 0]
    assert moved.written.source[:, 0].tolist() == [0, 1, 2]
    inside = Layers(layers=(Written(source=torch.eye(3)), Nothing(), state())).reorder(torch.tensor([1, 0, 2]))
    assert torch.equal(inside.layers[0].source, torch.eye(3))
    assert inside.layers[2].count.tolist() == [1, 0, 2]


def test_select_moves_fixed_parts_too():
    assert nested().select([2, 0]).written.source[:, 0].tolist() == [2, 0]


def test_reorder_keeps_the_batch_size():
    with pytest.raises(ValueError, match="rows: got 2 rows, expected 3: reorder keeps the batch size"):
        nested().reorder([0, 1])


def test_nothing_has_all_verbs():
    nothing = Nothing()
    assert nothing.select([1, 0]).equals(nothing.reorder([0]))
    assert Nothing.cat([nothing, nothing]).nbytes == nothing.batch_size == 0
    assert nothing.tensors() == {}


# ---- cat -----------------------------------------------------------------------------------------------


def test_cat_joins_batches():
    memory = nested(4, size=7)
    joined = Nested.cat([memory.select([0]), memory.select([1, 2]), memory.select([]), memory.select([3])])
    assert joined.equals(memory)
    assert joined.size == 7


def test_cat_pads_growing_axes():
    joined = Words.cat([words([1, 2, 3]), words([4], [5, 6]), words()])
    assert joined.slots == 3
    assert lists(joined) == [[1, 2, 3], [4], [5, 6]]
    assert not storages(joined) & storages(words([1]))


def test_cat_forgets_hints_that_no_longer_hold():
    even = [words([1, 2], even=True), words([3], even=True)]
    assert not Words.cat(even).even
    assert Words.cat([even[0], even[0]]).even
    assert not Words.cat([even[0], words([3, 4])]).even
    assert not Nested.cat([nested(quick=True), nested(quick=False)]).quick


def test_cat_refuses_unlike_memories():
    with pytest.raises(ValueError, match=r"memories: got \['Nothing', 'State'\], expected one kind and size of memory"):
        Memory.cat([state(), Nothing()])
    with pytest.raises(ValueError, match="one kind and size"):
        Nested.cat([nested(size=1), nested(size=2)])
    with pytest.raises(ValueError, match="one kind and size"):
        Words.cat([words([1], limit=2), words([1], limit=3)])


# ---- detach, to, nbytes, frozen --------------------------------------------------------------------------


def test_detach_cuts_every_tensor():
    value = torch.ones(2, 2, requires_grad=True)
    inner = replace(state(2), value=value * 2)
    memory = Both(forward=inner, backward=Layers(layers=(Written(source=value * 3),)))
    assert all(t.grad_fn is None for t in memory.detach().tensors().values())
    assert memory.forward.value.grad_fn is not None
    assert memory.detach().equals(memory)


def test_a_dtype_spares_integers_and_booleans():
    moved = nested().to(torch.float64)
    assert {name: t.dtype for name, t in moved.tensors().items()} == {
        "state.value": torch.float64,
        "state.count": torch.int64,
        "state.done": torch.bool,
        "written.source": torch.float64,
        "pair.0": torch.float64,
        "pair.1": torch.float64,
    }


@pytest.mark.parametrize("args", [("meta", torch.float16), (torch.float16, torch.device("meta"))])
def test_a_device_moves_everything(args):
    moved = nested().to(*args)
    assert {t.device.type for t in moved.tensors().values()} == {"meta"}
    assert moved.state.value.dtype == torch.float16
    assert moved.state.count.dtype == torch.int64


def test_nbytes_is_what_the_tensors_hold():
    assert state(3).nbytes == 3 * 2 * 4 + 3 * 8 + 3 * 1
    assert nested(3).nbytes == state(3).nbytes + 3 * 2 * 4 + 2 * 3 * 4
    assert words([1, 2, 3], [4]).reserve(2).nbytes == 2 * 5 * 8 + 2 * 5 * 2 * 4 + 2 * 8
    assert nested(3).to(torch.float64).nbytes == nested(3).nbytes + 4 * (6 + 6 + 6)


def test_memories_are_frozen():
    with pytest.raises(FrozenInstanceError):
        state().value = torch.zeros(3, 2)


def test_tensors_are_named_by_their_path():
    memory = Layers(layers=(state(), Layers(layers=(Nothing(), words([1])))))
    names = ["layers.0.value", "layers.0.count", "layers.0.done"]
    names += ["layers.1.layers.1.length", "layers.1.layers.1.words", "layers.1.layers.1.marks"]
    assert list(memory.tensors()) == names


def test_kinds_know_each_other_by_name():
    assert Memory.kinds["Layers"] is Layers
    assert Memory.kinds[State.kind()] is State
    assert State.kind().endswith("test_memory.State")


def test_pad_axis_lengthens_with_zeros():
    assert pad_axis(torch.ones(2, 1, 3), 1, 3).sum(dim=(0, 2)).tolist() == [6, 0, 0]
    assert pad_axis(torch.ones(2, 1), 0, 2).shape == (2, 1)


# ---- equals ----------------------------------------------------------------------------------------------


def test_equals_compares_values_kinds_and_statics():
    assert nested().equals(nested())
    assert nested(quick=True).equals(nested(quick=False))
    assert not nested(size=1).equals(nested(size=2))
    assert not nested().equals(state())
    assert not nested(3).equals(nested(2))
    assert not nested().equals(replace(nested(), pair=(torch.arange(3.0), torch.arange(3.0))))
    assert not state().equals(replace(state(), done=~state().done))
    assert not state().equals(replace(state(), count=state().count + 1), tol=1.0)
    assert not state().equals(state().to(torch.float64))
    assert not Layers(layers=(Nothing(),)).equals(Layers(layers=(Nothing(), Nothing())))


def test_equals_within_a_tolerance_relative_to_size():
    near = replace(state(), value=state().value * (1 + 1e-4))
    assert not state().equals(near)
    assert state().equals(near, tol=1e-3)
    assert not state().equals(near, tol=1e-5)
    large = replace(state(), value=torch.full((3, 2), 1e6))
    assert large.equals(replace(large, value=large.value + 1), tol=1e-3)


def test_equals_never_takes_nan_for_a_number():
    broken = replace(state(), value=torch.full((3, 2), torch.nan))
    assert not state().equals(broken, tol=1e9)
    endless = replace(state(), value=torch.full((3, 2), torch.inf))
    assert endless.equals(endless)


def test_equals_passes_over_blank_and_surplus_slots():
    memory = words([1, 2, 3], [4])
    other = replace(memory, words=memory.words.masked_fill(memory.words < 0, 99))
    assert memory.equals(other)
    assert memory.equals(memory.reserve(5))
    assert memory.equals(Words.cat([memory, words([1, 2, 3, 4, 5])]).select([0, 1]))
    assert not memory.equals(words([1, 2, 3], [4, -1]))
    assert not memory.equals(words([1, 2, 7], [4]))


# ---- pytrees ---------------------------------------------------------------------------------------------


def test_memories_are_pytrees():
    memory = Both(forward=nested(size=4, quick=True), backward=words([1, 2], [3], limit=5, even=True))
    leaves, spec = pytree.tree_flatten(memory)
    assert all(isinstance(leaf, Tensor) for leaf in leaves)
    assert len(leaves) == len(memory.tensors())
    again = pytree.tree_unflatten(leaves, spec)
    assert again.equals(memory)
    assert (again.forward.size, again.forward.quick) == (4, True)
    assert (again.backward.limit, again.backward.even) == (5, True)
    doubled = pytree.tree_map(lambda t: t + t, memory.backward)
    assert doubled.words.tolist() == [[2, 4], [6, -2]]


def test_a_pytrees_shape_knows_the_statics():
    specs = [pytree.tree_flatten(nested(size=size))[1] for size in (1, 1, 2)]
    assert specs[0] == specs[1]
    assert specs[0] != specs[2]


# ---- growing memories against plain lists -----------------------------------------------------------------


def test_reserve_makes_room():
    memory = words([1, 2, 3], [4, 5, 6], even=True)
    room = memory.reserve(4)
    assert (room.slots, room.reserved, room.in_place, room.even) == (7, True, False, False)
    assert words([1, 2, 3], [4], limit=5).reserve(99).slots == 5
    assert room.words.data_ptr() != memory.words.data_ptr()
    full = words([1], limit=1)
    assert full.reserve(5).words.data_ptr() != full.words.data_ptr()


def test_reserve_reaches_inner_memories():
    inside = Layers(layers=(words([1]), state(1))).reserve(3, in_place=True)
    assert (inside.layers[0].slots, inside.layers[0].in_place) == (4, True)


def test_in_place_writes_into_its_own_room_only_if_allowed():
    new = {"words": torch.tensor([[8], [9]]), "marks": torch.zeros(2, 1, 2)}
    for in_place in (False, True):
        room = words([1, 2], [3]).reserve(2, in_place=in_place)
        _, _, after = room.extend(new, None)
        assert lists(after) == [[1, 2, 8], [3, 9]]
        assert (after.words.data_ptr() == room.words.data_ptr()) is in_place


def test_settled_memories_can_be_read_on_from():
    _, _, after = words([1, 2], [3]).reserve(2).settled().extend(new_steps([[5], [6]]), None)
    assert lists(after) == [[1, 2, 5], [3, 6]]


def test_windows_leave_no_storage_behind():
    _, _, after = words([1, 2], [3, 4], limit=2, even=True).extend(new_steps([[5] * 9, [6] * 9]), None)
    assert after.nbytes == sum(t.untyped_storage().nbytes() for t in after.tensors().values())
    assert lists(after) == [[5, 5], [6, 6]]


def new_steps(rows):
    table = torch.tensor(rows, dtype=torch.long).reshape(len(rows), len(rows[0]))
    return {"words": table, "marks": torch.stack([table, table], 2) / 10}


@st.composite
def histories(draw):
    """Draw a batch size, a limit, and what happens: appends (even or ragged), reserving, choosing rows."""
    batch = draw(st.integers(1, 3))
    limit = draw(st.one_of(st.none(), st.integers(0, 4)))
    append = st.integers(0, 4).flatmap(
        lambda steps: st.one_of(
            st.just(("append", steps, None)),
            st.lists(st.integers(0, steps), min_size=batch, max_size=batch).map(lambda n: ("append", steps, n)),
        )
    )
    choose = st.permutations(range(batch)).map(lambda rows: ("select", rows, None))
    reserve = st.booleans().map(lambda in_place: ("reserve", 40, in_place))
    events = draw(st.lists(st.one_of(append, append, append, choose, reserve), max_size=7))
    return batch, limit, draw(st.booleans()), events


def check_what_is_seen(read, offsets, before, new, counts, limit):
    """Step t of a row sees exactly the kept steps and the new ones up to itself, in order."""
    for b, (old, count) in enumerate(zip(before, counts, strict=True)):
        kept = old if limit is None else old[len(old) - min(len(old), limit) :]
        row_offsets = offsets[b if len(offsets) > 1 else 0].tolist()
        for t in range(count):
            seen = sorted((o, w) for o, w in zip(row_offsets, read["words"][b].tolist(), strict=True) if o <= t)
            assert [w for _, w in seen] == [*kept, *new[b][: t + 1]]
            assert [o for o, _ in seen] == list(range(-len(kept), t + 1))


@settings(max_examples=150)
@given(histories())
def test_growing_memories_are_lists(history):
    batch, limit, even, events = history
    memory, model = words(*[[]] * batch, limit=limit, even=even), [[] for _ in range(batch)]
    fresh = iter(range(1, 10_000))
    for what, argument, counts in events:
        if what == "reserve":
            memory = memory.reserve(argument, in_place=counts)
            continue
        if what == "select":
            memory, model = memory.select(argument), [list(model[b]) for b in argument]
            continue
        new = [[next(fresh) for _ in range(argument)] for _ in range(batch)]
        valid = None if counts is None else torch.arange(argument) < torch.tensor(counts)[:, None]
        counts = [argument] * batch if counts is None else counts
        before = memory.select(slice(None))
        read, offsets, after = memory.extend(new_steps(new), valid)
        check_what_is_seen(read, offsets, model, new, counts, limit)
        if not (memory.in_place and limit is None):
            assert memory.equals(before)
            assert torch.equal(memory.words, before.words)
        memory, model = after, [row + added[:n] for row, added, n in zip(model, new, counts, strict=True)]
        assert memory.length.tolist() == [len(row) for row in model]
        assert lists(memory) == [row if limit is None else row[len(row) - min(len(row), limit) :] for row in model]
        assert torch.equal(memory.settled().marks[..., 0], memory.settled().words / 10)


def test_a_mask_of_another_batch_size_is_refused():
    with pytest.raises(ValueError, match="rows: got a mask of 2, expected 3, one for each row"):
        Position(length=torch.zeros(3)).select(torch.tensor([True, False]))
