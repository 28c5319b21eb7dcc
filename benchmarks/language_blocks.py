"""The tables about language models: tinyshakespeare by characters, nanoGPT beside ours, Penn Treebank."""

from __future__ import annotations

from tables import Result, Say, join, table

CHARACTERS_NOTE = (
    "tinyshakespeare, evaluated on all of the held-out last tenth. nanoGPT's setting: median of three seeds "
    "{median:.4f}; "
    "nanoGPT publishes 1.4697, a sampled estimate of one run. The checkpoint is selected on the same text, as there."
)
NANOGPT_NOTE = (
    "4 layers, width 128, context 64, batch 12, 2000 updates; nanoGPT's README gives 1.88, sampled. Our speed "
    "over theirs, interleaved every 50 updates: median {ratio}, quartiles {low} and {high}."
)
PTB_NOTE = (
    "Perplexity over the whole text with carried memory; the epoch is selected on validation. Biases: per gate; the "
    "paper's equations have one, its authors' code two. Matmuls are in tf32, or in bf16 by our own kernels."
)
CHINESE = {
    "model": "模型",
    "evaluated": "评估方式",
    "parameters": "参数",
    "tokens read": "训练 token 数",
    "nanoGPT's estimate": "nanoGPT 抽样估计",
    "6-gram": "6 元模型",
    "5-gram": "5 元模型",
    "carried": "传递记忆",
    "cold windows": "独立窗口",
    "carried, in 32 parts": "传递记忆，分 32 段",
    "layers": "层数",
    "dropout": "dropout",
    "rate": "学习率",
    "decay": "衰减系数",
    "epochs before decay": "衰减前 epoch 数",
    "seed": "随机种子",
    "transformer, as nanoGPT": "transformer（nanoGPT 设置）",
    "validation": "验证",
    "test": "测试",
    "published": "论文",
    "small": "小",
    "medium": "中",
    "tokens/s": "token/秒",
    "matmul precision": "矩阵乘精度",
    "biases": "偏置",
    "diverged": "发散",
    CHARACTERS_NOTE: "tinyshakespeare，在留出的末尾十分之一上完整评估。nanoGPT 的设置：三个随机种子的中位数为 "
    "{median:.4f}；"
    "nanoGPT 公布的 1.4697 是单次训练的抽样估计。与其做法相同，检查点也在同一段文本上选取。",
    NANOGPT_NOTE: "4 层，宽度 128，上下文 64，批大小 12，2000 次更新；nanoGPT 的 README 给出 1.88（抽样估计）。"
    "速度比（本项目 / nanoGPT），每 50 次更新交错一次：中位数 {ratio}，四分位数 {low} 与 {high}。",
    PTB_NOTE: "困惑度，在全文上评估并传递记忆；epoch 按验证集选取。偏置：每个门的偏置个数，论文公式为一个，"
    "作者代码为两个。"
    "矩阵乘用 tf32，或由自研 kernel 以 bf16 计算。",
}


def characters_block(result: Result, say: Say) -> str:
    words = ("model", "evaluated", "matmul precision", "parameters", "tokens read", "nats", "nanoGPT's estimate")
    rows = [characters_row(row, say) for row in sorted(result["rows"], key=lambda row: row["whole_set_loss"])]
    rows.append([say("6-gram"), say("carried"), "", "", "", f"{result['six_gram']:.4f}", ""])
    return join(
        table([say(word) for word in words], rows, texts=3),
        say(CHARACTERS_NOTE).format(median=result["median"]),
        result,
        say,
    )


def characters_row(row: Result, say: Say) -> list[str]:
    how = row["setting"]
    tokens = row["step"] * how["batch"] * how["steps"] / 1e6
    sampled = "" if row["sampled_loss"] is None else f"{row['sampled_loss']:.4f}"
    read = say(row["read"] if row["read"].startswith("carried") else "cold windows")
    figures = [f"{row['parameters']:,}", f"{tokens:.1f} M", f"{row['whole_set_loss']:.4f}", sampled]
    return [characters_name(how, say), read, precision_of(how), *figures]


def characters_name(how: Result, say: Say) -> str:
    if how["family"] == "transformer":
        return f"{say('transformer, as nanoGPT')}, {say('seed')} {how['seed']}"
    layers = f", {say('layers')} {how['layers']}" if how["layers"] else ""
    return f"{how['family']}{layers}, {say('dropout')} {how['dropout']}, {say('rate')} {how['rate']}"


def precision_of(how: Result) -> str:
    """Return the matmul precision of a row; the oldest rows do not record it."""
    precision = how.get("precision", "fp32")
    return "tf32" if precision == "fp32" else precision


def ptb_block(result: Result, say: Say) -> str:
    head = [
        "model",
        "parameters",
        "matmul precision",
        "biases",
        "rate",
        "epochs before decay",
        "decay",
        "seed",
        "validation",
        "test",
        "published",
    ]
    rows = [ptb_row(row, result["sizes"][row["size"]]["published"], say) for row in result["rows"]]
    rows.append([say("5-gram"), *[""] * (len(head) - 3), f"{result['five_gram']:.2f}", ""])
    return join(table([say(word) for word in head], rows, texts=1), say(PTB_NOTE), result, say)


def ptb_row(row: Result, published: float, say: Say) -> list[str]:
    how = [f"{row['parameters']:,}", precision_of(row), str(row.get("biases", 2))]
    how += [f"{row['rate']:g}", str(row["first"]), f"{row['decay']:.3g}", str(row["seed"])]
    figures = [row["valid_perplexity"], row["test_perplexity"]]
    written = [say("diverged") if figure is None else f"{figure:.2f}" for figure in figures]
    return [
        f"{row['family']}, {say(row['size'])}",
        *how,
        *written,
        f"{published:.1f}" if row["family"] == "lstm" else "",
    ]


def nanogpt_block(result: Result, say: Say) -> str:
    head = [say("model"), say("tokens/s"), say("nats"), say("nanoGPT's estimate")]
    rows = []
    for row in result["rows"]:
        speed = f"{row['tokens_per_second']:,.0f}" if "tokens_per_second" in row else ""
        whole = f"{row['whole_set_loss']:.4f}" if "whole_set_loss" in row else ""
        rows.append([row["name"], speed, whole, f"{row['sampled']:.4f}"])
    low, _, high = result["quartiles"]
    note = say(NANOGPT_NOTE).format(ratio=f"{result['ratio']:.3f}", low=f"{low:.3f}", high=f"{high:.3f}")
    return join(table(head, rows, texts=1), note, result, say)
