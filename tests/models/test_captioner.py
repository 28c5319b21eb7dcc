"""Captioners: the laws, independence of rows, what they see, and that both families and hard attention learn."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from recollect.core.record import record
from recollect.core.validate import ContractError
from recollect.data.synthetic.shapes import COLOURS
from recollect.generation.sampling import generate
from recollect.generation.settings import Settings
from recollect.laws.check import LAWS, check_layer
from recollect.layers.attention.attend import Attend
from recollect.models.captioning import FAMILIES, CaptionConfig, Captioner
from recollect.models.sizes import parts_of, sized_captioner
from searching import check_search
from tiers import slow_after

WORDS, BEGIN, END = 6, 4, 5
VARIANTS: dict[str, dict] = {
    **{family: {"family": family} for family in FAMILIES},
    "hard": {"family": "show-attend-tell", "alignment": "hard"},
    "gru, two layers": {"family": "show-attend-tell", "cell": "gru", "layers": 2, "score": "general", "dropout": 0.5},
    "transformer post-norm, tied": {"family": "transformer", "norm": "post", "layers": 2, "tied": True},
    "one cell": {"family": "show-attend-tell", "grid": 1},
}


def small(name: str, **options) -> Captioner:
    torch.manual_seed(0)
    shape = {"target_vocab": WORDS, "height": 6, "breadth": 8, "width": 8, "hidden": 12, "heads": 2, "grid": 4}
    model = Captioner(CaptionConfig(**{**shape, **VARIANTS[name], **options})).double()
    with torch.no_grad():  # so that picture and caption matter for what comes next
        for p in model.parameters():
            p.mul_(2 if p.dim() > 1 else 1)
    return model.eval()


def pictures(count: int = 4) -> torch.Tensor:
    draw = torch.Generator().manual_seed(2)
    return torch.randint(256, (count, 6, 8, 3), generator=draw).to(torch.uint8)


def captions(count: int = 4) -> torch.Tensor:
    return torch.randint(WORDS, (count, 6), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", slow_after(2, VARIANTS))
def test_every_family_keeps_the_laws(name):
    model = small(name)
    laws = LAWS if name in FAMILIES else ("split", "padding", "rows", "gradients", "reference")
    check_layer(model, captions(3), model.remember(pictures(3)), laws=laws)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_row_does_not_depend_on_its_batch(name):
    model = small(name)
    logits, _ = model(captions(), model.remember(pictures()))
    for row in range(4):
        alone, _ = model(captions()[row : row + 1], model.remember(pictures()[row : row + 1]))
        torch.testing.assert_close(logits[row : row + 1], alone, rtol=1e-9, atol=1e-9)
    nobody, _ = model(captions()[:0], model.remember(pictures()[:0]))
    assert nobody.shape == (0, 6, WORDS)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_picture_and_where_things_are_on_it_matter(name):
    model, picture = small(name), pictures(1)
    plain, turned, changed = (model.remember(one) for one in (picture, picture.flip(2), 255 - picture))
    said = [model(captions(1), memory)[0] for memory in (plain, turned, changed)]
    assert (said[0] - said[1]).abs().max() > 1e-6
    assert (said[0] - said[2]).abs().max() > 1e-6


@pytest.mark.parametrize("name", VARIANTS)
def test_bytes_are_floats_from_0_to_1(name):
    model = small(name)
    one, other = (model(captions(), model.remember(p))[0] for p in (pictures(), pictures().double() / 255))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("family", FAMILIES)
def test_beam_search_of_one_is_greedy_and_batches_do_not_matter(family):
    model = small(family)
    check_search(model, model.remember(pictures()), BEGIN, END)


@pytest.mark.parametrize("name", ["show-attend-tell", "hard"])
def test_cells_that_are_not_valid_are_not_looked_at(name):
    model, valid = small(name), torch.tensor([[True, False, False, False] * 3])  # the first column of 3 × 4 cells
    with record(model) as seen:
        model(captions(1), model.remember(pictures(1), valid))
    weights = seen["decoder.attend.weights"]
    assert weights.shape[-1] == 12
    assert weights[..., ~valid[0]].abs().max() == 0
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


def test_hard_attention_looks_at_one_cell_and_its_scores_learn():
    model = small("hard")
    with record(model) as seen:
        model(captions(), model.remember(pictures()))
    weights = seen["decoder.attend.weights"]
    assert torch.equal(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    model.train()
    model(captions(), model.remember(pictures()))[0].square().sum().backward()
    assert isinstance(model.decoder.attend, Attend)
    assert model.decoder.attend.score.query.weight.grad.abs().max() > 0


def test_sizes_are_met():
    for family in FAMILIES:
        for size, wanted in (("tiny", 250_000), ("small", 2_000_000)):
            config = sized_captioner(family, 500, (32, 32, 3), size)
            parts = parts_of(config)
            assert abs(parts.body - wanted) <= 0.05 * wanted
            with torch.device("meta"):
                assert parts.total == sum(p.numel() for p in Captioner(config).parameters())
            assert parts.vocabulary == 2 * 500 * config.width + 500  # embedding, output and its bias


@pytest.mark.parametrize(
    ("picture", "error"),
    [
        (torch.zeros(2, 6, 8, 4), r"pictures: got shape \(2, 6, 8, 4\), expected \(B, 6, 8, 3\)"),
        (torch.zeros(6, 8, 3), r"pictures: got shape \(6, 8, 3\)"),
    ],
)
def test_pictures_of_another_shape_are_refused(picture, error):
    with pytest.raises(ContractError, match=error):
        small("transformer").remember(picture)


@pytest.mark.parametrize(
    "options", [{"family": "shown"}, {"alignment": "firm"}, {"cell": "rnn"}, {"height": 0}, {"grid": 0}], ids=str
)
def test_configs_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        CaptionConfig(**{"family": "transformer", "target_vocab": 9, "height": 8, "breadth": 8} | options)


def test_without_a_picture_there_is_nothing_to_say():
    with pytest.raises(ContractError, match="memory"):
        small("show-attend-tell")(captions())


def patches(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a small square on grey, 8×8; a caption is the ids of its colour, of its quarter, and of the end."""
    colours = torch.tensor([rgb for _, rgb in COLOURS.values()], dtype=torch.uint8)
    colour, quarter = torch.randint(6, (count,)), torch.randint(4, (count,))
    image = torch.full((count, 8, 8, 3), 245, dtype=torch.uint8)
    for row, (c, q) in enumerate(zip(colour.tolist(), quarter.tolist(), strict=True)):
        y, x = 4 * (q // 2), 4 * (q % 2)
        image[row, y : y + 3, x : x + 3] = colours[c]
    return image, torch.stack([colour, 6 + quarter, torch.full((count,), 11)], dim=1)


@pytest.mark.parametrize("name", ["show-attend-tell", "transformer", "hard"])
def test_every_family_learns_colours_and_places(name):
    torch.manual_seed(0)
    shape = {"width": 32, "hidden": 48, "heads": 4, "grid": 4} | VARIANTS[name]
    model = Captioner(CaptionConfig(target_vocab=12, height=8, breadth=8, **shape))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(150):
        image, target = patches(32)
        read = F.pad(target[:, :-1], (1, 0), value=10)
        loss = F.cross_entropy(model(read, model.remember(image))[0].flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    image, target = patches(100)
    settings = Settings(tokens=3, greedy=True, begin=10, stop=[11])
    said = generate(model.eval(), [[]] * 100, settings, model.remember(image))
    right = sum(found.ids == ids for found, ids in zip(said, target.tolist(), strict=True))
    assert right >= 95, right
