"""The table of real weights that others trained."""

from __future__ import annotations

from tables import Result, Say, join, table

NOTE = (
    "Weights that others trained, in our models. Difference: the largest absolute one, and relative to 1 + |value|, in "
    "float32; for the story, equal words."
)
CHINESE = {
    NOTE: "别人训练好的权重，用我们的模型计算。差异：最大绝对差，以及相对于 1 + |数值| 的差，float32；"
    "故事一行比较的是逐词相同。",
    "weights": "权重",
    "reference": "参照",
    "compared": "比较内容",
    "largest difference": "最大差异",
    "relative": "相对",
}


def pretrained_block(result: Result, say: Say) -> str:
    head = [say("weights"), say("model"), say("reference"), say("compared"), say("parameters")]
    head += [say("largest difference"), say("relative")]
    rows = []
    for row in result["rows"]:
        differences = ["0", "0"] if "words" in row else [f"{row[name]:.1e}" for name in ("largest", "largest_relative")]
        texts = [row["weights"], f"`{row['model']}`", row["reference"], row["compared"]]
        rows.append([*texts, f"{row['parameters']:,}", *differences])
    return join(table(head, rows, texts=4), say(NOTE), result, say)
