"""Real weights that others trained: English words to phonemes with the GRU encoder–decoder of g2p_en 2.1.0.

    RECOLLECT_DATA=FOLDER python benchmarks/g2p.py

FOLDER/weights/g2p_en/checkpoint20.npz is loaded into our family "sutskever" with GRU cells. Its greedy decode of 300
words, in one batch and one by one, must be symbol for symbol that of a loop in plain numpy over the same file.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from common import data_folder, save_result
from recollect.core.padding import pad as pad_rows
from recollect.generation.sampling import generate
from recollect.generation.settings import Settings
from recollect.models.sizes import parts_of
from recollect.models.translation import TranslationConfig, Translator

Weights = dict[str, NDArray[np.float32]]

GRAPHEMES = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
VOWELS = ["AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW"]
CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
STRESSED = [vowel + stress for vowel in VOWELS for stress in "012"]
PHONEMES = ["<pad>", "<unk>", "<s>", "</s>", *sorted([*STRESSED, *CONSONANTS.split(), "UW"])]
BEGIN, END, LONGEST = PHONEMES.index("<s>"), PHONEMES.index("</s>"), 20
PARAMETERS = {"w_ih": "weight_ih", "w_hh": "weight_hh", "b_ih": "bias_ih", "b_hh": "bias_hh"}

WORDS = """
hello world table window garden kitchen mountain river ocean forest island bridge castle village city street corner
market station airport hospital library museum theater church school office factory farm field meadow valley desert
apple banana orange lemon cherry grape melon peach pear plum carrot potato tomato onion garlic pepper salt sugar
butter cheese bread water coffee tea milk juice soup salad dinner lunch breakfast supper spoon fork knife plate bottle
glass doctor teacher farmer soldier sailor painter writer singer dancer actor lawyer engineer nurse baker butcher
tailor mother father brother sister daughter husband cousin uncle neighbor friend stranger visitor captain leader
monday tuesday wednesday thursday friday saturday sunday january february march april june july august september
october november december spring summer autumn winter morning evening midnight dog cat horse sheep goat chicken rabbit
squirrel elephant giraffe zebra lion tiger monkey spider butterfly mosquito red yellow green purple silver golden
brown black white gray walk run jump swim climb dance sing write read listen speak whisper laugh cry sleep dream think
wonder remember forget believe imagine decide choose begin finish continue follow answer question beautiful dangerous
famous gentle honest jealous lucky nervous patient quiet rapid serious stubborn terrible useful yesterday tomorrow
always never sometimes often rarely perhaps therefore however although because computer keyboard telephone television
camera engine machine hammer needle ladder mirror candle blanket pillow curtain carpet furniture umbrella bicycle
airplane submarine tractor wagon knowledge language grammar sentence paragraph chapter history science physics
chemistry biology mathematics geometry music melody rhythm orchestra violin trumpet guitar memory attention sequence
recurrent transformer gradient network neuron through thought though enough laughter daughters knight rough bough
cough electricity philosophy psychology opportunity responsibility communication imagination anchor beacon cabin
dolphin eagle feather glacier harbor iceberg jungle kingdom lantern magnet nest oyster parrot quarry ribbon saddle
thunder velvet whistle
"""


def main() -> None:
    words = WORDS.split()
    assert len(set(words)) == 300
    with np.load(data_folder() / "weights" / "g2p_en" / "checkpoint20.npz") as file:
        weights = dict(file)
    model = load(weights)
    sources = [[GRAPHEMES.index(letter) for letter in word] + [GRAPHEMES.index("</s>")] for word in words]
    begun = time.perf_counter()
    together = decode(model, sources)
    seconds = time.perf_counter() - begun
    alone = [decode(model, [source])[0] for source in sources]
    plain = [numpy_decode(weights, source) for source in sources]
    rows = [compare(word, *said) for word, *said in zip(words, together, alone, plain, strict=True)]
    assert rows[words.index("hello")]["phonemes"] == "HH EH1 L OW0"
    unequal = [row["word"] for row in rows if not row["equal"]]
    assert not unequal, unequal
    totals = {"words": len(words), "equal": len(rows), "seconds_in_one_batch": seconds}
    save_result("g2p", rows, parameters=parts_of(model.config).total, **totals)
    print(f"{len(rows)} of {len(words)} words equal to the numpy decode; all in one batch {seconds:.2f} s")


def load(weights: Weights) -> Translator:
    """Copy the file's arrays into our model."""
    config = TranslationConfig("sutskever", len(GRAPHEMES), len(PHONEMES), width=256, hidden=256, cell="gru")
    model = Translator(config)
    state = {"decoder.out.weight": weights["fc_w"], "decoder.out.bias": weights["fc_b"]}
    for short, part in (("enc", "encoder"), ("dec", "decoder")):
        state[f"{part}.embedding.table.weight"] = weights[f"{short}_emb"]
        state |= {f"{part}.cells.layers.0.{ours}": weights[f"{short}_{name}"] for name, ours in PARAMETERS.items()}
    model.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
    return model.eval()


def decode(model: Translator, sources: list[list[int]]) -> list[list[int]]:
    """Return each word's phonemes, decoded greedily, without the end symbol."""
    settings = Settings(tokens=LONGEST, greedy=True, begin=BEGIN, stop=[END])
    with torch.no_grad():
        memory = model.remember(*pad_rows(sources))
    said = generate(model, [[]] * len(sources), settings, memory)
    return [[i for i in found.ids if i != END] for found in said]


def numpy_decode(weights: Weights, source: list[int]) -> list[int]:
    """Decode in numpy alone, without our code or torch."""
    h = np.zeros(256, dtype=np.float32)
    for i in source:
        h = numpy_gru(weights, "enc", weights["enc_emb"][i], h)
    said, last = [], BEGIN
    for _ in range(LONGEST):
        h = numpy_gru(weights, "dec", weights["dec_emb"][last], h)
        last = int((weights["fc_w"] @ h + weights["fc_b"]).argmax())
        if last == END:
            break
        said.append(last)
    return said


def numpy_gru(weights: Weights, part: str, x: NDArray[np.float32], h: NDArray[np.float32]) -> NDArray[np.float32]:
    from_x = weights[f"{part}_w_ih"] @ x + weights[f"{part}_b_ih"]
    from_h = weights[f"{part}_w_hh"] @ h + weights[f"{part}_b_hh"]
    gates = 1 / (1 + np.exp(-(from_x[:512] + from_h[:512])))
    r, z = gates[:256], gates[256:]
    candidate = np.tanh(from_x[512:] + r * from_h[512:])
    return (1 - z) * candidate + z * h


def compare(word: str, together: list[int], alone: list[int], plain: list[int]) -> dict[str, Any]:
    spoken = " ".join(PHONEMES[i] for i in together)
    return {"word": word, "phonemes": spoken, "equal": together == alone == plain}


if __name__ == "__main__":
    main()
