"""The gain of pre-training over the number of labels: docs/transfer.svg, a table and its verdict.

python benchmarks/transfer_picture.py
"""

from __future__ import annotations

import statistics
import warnings
from typing import Any

import matplotlib
from matplotlib import pyplot

from common import ROOT, earlier

LOOK = {
    "lstm": ("#0072B2", "D"),
    "gru": ("#56B4E9", "s"),
    "bilstm": ("#CC79A7", "v"),
    "transformer": ("#D55E00", "P"),
    "bert": ("#009E73", "^"),
}
NAMES = {"transformer": "GPT", "lstm": "LSTM", "gru": "GRU", "bilstm": "BiLSTM", "bert": "BERT"}


def main() -> None:
    found = means(earlier("transfer"))
    counts = sorted({count for _, _, count in found})
    families = [family for family in LOOK if any(key[0] == family for key in found)]
    draw(found, families, str(ROOT / "docs" / "transfer.svg"))
    print("accuracy on SST-2's test part, %: with new weights → pre-trained")
    for family in families:
        cells = [f"{100 * found[family, False, n]:.1f} → {100 * found[family, True, n]:.1f}" for n in counts]
        print(f"{NAMES[family]:8}", *(cell.rjust(14) for cell in cells))
    for family in families:
        gains = {n: found[family, True, n] - found[family, False, n] for n in counts}
        words = ", ".join(f"{100 * gain:+.1f} with {n} labels" for n, gain in gains.items())
        verdict = "helps" if statistics.mean(gains.values()) > 0 else "does not help"
        print(f"{NAMES[family]}: {words}; pre-training {verdict}")


def means(rows: list[dict[str, Any]]) -> dict[tuple[str, bool, int], float]:
    """Return the mean over the seeds by family, whether it was pre-trained, and labels; of pairs with both arms."""
    values: dict[tuple[str, bool, int], list[float]] = {}
    for row in rows:
        if row["cell"] == "label":
            values.setdefault((row["family"], row["pretrained"], row["labels"]), []).append(row["value"])
    return {key: statistics.mean(some) for key, some in values.items() if (key[0], not key[1], key[2]) in values}


def draw(found: dict[tuple[str, bool, int], float], families: list[str], path: str) -> None:
    """Draw accuracy over labels: whole lines are pre-trained, dotted ones begin from new weights."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": "recollect", "font.size": 9}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        figure, axes = pyplot.subplots(figsize=(6.4, 4.2), facecolor="white")
        for family in families:
            color, mark = LOOK[family]
            for is_trained, line in ((True, "-"), (False, ":")):
                points = sorted((n, 100 * v) for (f, p, n), v in found.items() if f == family and p == is_trained)
                title = f"{NAMES[family]}{'' if is_trained else ', new weights  随机初始化'}"
                axes.plot(*zip(*points, strict=True), line, color=color, marker=mark, markersize=4, label=title)
        axes.set_xscale("log")
        axes.set_xlabel("labels  标注数")
        axes.set_ylabel("SST-2 test accuracy, %  测试准确率")
        axes.legend(fontsize=7, ncols=2)
        figure.tight_layout(pad=0.8)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


if __name__ == "__main__":
    main()
