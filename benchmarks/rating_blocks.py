"""The table about predicted ratings."""

from __future__ import annotations

from itertools import groupby
from statistics import mean

from tables import Result, Say, join, table

RATINGS_NOTE = (
    "MovieLens-100k, {ratings:,} ratings, means over {folds} folds of a fifth each, {epochs} epochs. New items: the "
    "test items that a user rated above the mean, ranked among all that the user has not rated in training."
)
CHINESE = {
    "mean": "全体均值",
    "mean of the user": "用户均值",
    "mean of the item": "物品均值",
    "biases": "biases",
    "factors": "factors",
    "fit, s": "训练秒数",
    RATINGS_NOTE: "MovieLens-100k，{ratings:,} 条评分，{folds} 折交叉验证的均值（每折五分之一），{epochs} 轮。"
    "新物品：测试集中用户评分高于均值的物品，在该用户训练时未评分的全部物品中排名。",
}


def ratings_block(result: Result, say: Say) -> str:
    head = [say("model"), say("parameters"), "RMSE", "MAE", "MRR", "recall@10", say("fit, s")]
    rows = []
    for name, group in groupby(sorted(result["rows"], key=lambda row: str(row["model"])), lambda row: row["model"]):
        folds = list(group)
        figures = {key: mean(row[key] for row in folds) for key in folds[0] if key not in ("model", "fold")}
        cells = [f"{figures[key]:.4f}" if key in figures else "" for key in ("rmse", "mae", "mrr", "recall")]
        parameters = f"{figures['parameters']:,.0f}" if "parameters" in figures else ""
        seconds = f"{figures['seconds']:.1f}" if "seconds" in figures else ""
        rows.append((figures["rmse"], [say(name), parameters, *cells, seconds]))
    epochs = result["budget"].removesuffix("epochs")
    note = say(RATINGS_NOTE).format(ratings=result["ratings"], folds=result["folds"], epochs=epochs)
    return join(table(head, [cells for _, cells in sorted(rows)], texts=1), note, result, say)
