"""The tables about looking inside: how long a trace takes, and how soon the page shows it."""

from __future__ import annotations

from tables import Result, Say, join, table

INSPECTING_NOTE = (
    "One text of 64 symbols, the smallest size of each family, the fastest of three: states, gates, weights, gradients "
    "from every prediction to every symbol, leaving out each symbol, JSON included; {threads} threads. All six: "
    "{total:.1f} s. Of a model of a million parameters the gradients alone, 64 × 64: {gradients}."
)
PAGE_NOTE = (
    "The demo's {models} models in one file of {size:.1f} MB, medians of {loads} loads, each in a profile of its own; "
    "seconds from the start of the navigation. One step of the scrubber: {step:.0f} ms. {browser}; {load:.0f} "
    "processes were running."
)
LEADS = {"page_speed": "How soon the page is there ([guide](guide/page.md)):"}
CHINESE = {
    LEADS["page_speed"]: "页面多快出现（[指南](guide/page.zh-CN.md)）：",
    INSPECTING_NOTE: "一段 64 个符号的文本，各族取最小规模，三次中最快的一次：状态、门、权重、"
    "每个预测对每个符号的梯度、逐个去掉符号，并写成 JSON；{threads} 线程。六个模型合计 {total:.1f} 秒。"
    "百万参数的模型只计算 64 × 64 的梯度：{gradients}。",
    PAGE_NOTE: "演示中的 {models} 个模型写成一个 {size:.1f} MB 的文件，取 {loads} 次加载的中位数，"
    "每次使用全新的浏览器配置；从导航开始计时。时间轴移动一步：{step:.0f} 毫秒。{browser}；"
    "当时有 {load:.0f} 个进程在运行。",
    "trace, s": "追踪，秒",
    "processor, s": "处理器时间，秒",
    "view": "视图",
    "first picture, s": "首个画面，秒",
    "slowest, s": "最慢一次，秒",
    "read": "阅读",
    "reach": "回溯",
    "write": "续写",
    "train": "训练",
}


def inspecting_block(result: Result, say: Say) -> str:
    head = [say("model"), say("parameters"), say("trace, s"), say("processor, s")]
    traces = [row for row in result["rows"] if row["what"] == "trace"]
    rows = [
        [row["family"], f"{row['parameters']:,}", f"{row['seconds']:.2f}", f"{row['processor']:.2f}"] for row in traces
    ]
    found = [row for row in result["rows"] if row["what"] == "gradients"]
    gradients = ", ".join(f"{row['family']} {row['seconds']:.2f} s" for row in found)
    note = say(INSPECTING_NOTE).format(threads=result["threads"], total=result["total"], gradients=gradients)
    return join(table(head, rows, texts=1), note, result, say)


def page_block(result: Result, say: Say) -> str:
    head = [say("view"), say("first picture, s"), say("slowest, s")]
    rows = [[say(row["view"]), f"{row['first'] / 1e3:.2f}", f"{row['slowest'] / 1e3:.2f}"] for row in result["rows"]]
    read = result["rows"][0]
    facts = {"size": result["bytes"] / 1e6, "browser": result["browser"], "load": result["load"]}
    note = say(PAGE_NOTE).format(models=read["models"], loads=read["loads"], step=read["step"], **facts)
    return join(table(head, rows, texts=1), note, result, say)


BLOCKS = {"inspecting": ("inspecting", inspecting_block), "page_speed": ("page-speed", page_block)}
