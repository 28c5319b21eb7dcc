"""The tables about labels of texts and tags of words."""

from __future__ import annotations

from tables import Result, Say, join, table

LABELS_NOTE = (
    "{name}: from scratch, about {epochs:g} epochs; weights, and settings where several were tried, selected on the "
    "validation part; mean over the seeds; minutes of one run on one thread of a machine with other work. Majority: "
    "the most frequent label, or the most frequent tag of each word."
)
NAMES = {
    "sst2": "SST-2, 1,821 test sentences",
    "ud": "UD English EWT, parts of speech, test part",
    "snips-intents": "SNIPS, intents, 700 test sentences",
    "snips-slots": "SNIPS, slots, 700 test sentences",
    "chnsenticorp": "ChnSentiCorp, development texts that do not occur in training",
    "wnut17": "WNUT-17, entities, test part",
    "spoken-digits": "Spoken digits, 180 recordings",
    "digit-strings": "Strings of three to five spoken digits",
}
CHINESE_NAMES = {
    "sst2": "SST-2，1,821 条测试句",
    "ud": "UD English EWT，词性，测试集",
    "snips-intents": "SNIPS，意图，700 条测试句",
    "snips-slots": "SNIPS，槽位，700 条测试句",
    "chnsenticorp": "ChnSentiCorp，未出现在训练集中的开发集文本",
    "wnut17": "WNUT-17，实体，测试集",
    "spoken-digits": "语音数字，180 条录音",
    "digit-strings": "三到五个语音数字组成的串",
}
MEASURES = {"accuracy": "accuracy, %", "span_f1": "span F1, %", "symbols": "symbol accuracy, %"}
CHINESE = {
    "accuracy, %": "准确率，%",
    "span F1, %": "整段 F1，%",
    "symbol accuracy, %": "符号准确率，%",
    "seeds": "种子数",
    "minutes": "分钟",
    LABELS_NOTE: "{name}：从头训练约 {epochs:g} 轮，权重（试过多组设置时还有设置）按验证集选取，取各种子的均值；"
    "分钟数为单次训练、单线程、机器上另有负载时的用时。"
    "majority：最常见的标签，或每个词最常见的标签。",
    **{NAMES[name]: CHINESE_NAMES[name] for name in NAMES},
}


def labels_block(result: Result, say: Say) -> str:
    """Write one data set's table: every model with its parameters, its figure and its minutes."""
    rows = result["rows"]
    name = NAMES[result["name"].removeprefix("labels-")]
    head = [say("model"), say("parameters"), say(MEASURES[rows[0]["measure"]]), say("seeds"), say("minutes")]
    cells = [
        [
            row["model"],
            f"{row['parameters']:,}",
            f"{100 * row['value']:.1f}",
            str(row["seeds"]),
            f"{row['seconds'] / 60:.1f}",
        ]
        for row in rows
    ]
    note = say(LABELS_NOTE).format(name=say(name), epochs=result["epochs"])
    return join(table(head, cells, texts=1), note, result, say)


MEASURED = ("sst2", "ud", "snips-intents", "snips-slots", "chnsenticorp", "spoken-digits")  # those with a result
BLOCKS = {f"labels_{name.replace('-', '_')}": (f"labels-{name}", labels_block) for name in MEASURED}
