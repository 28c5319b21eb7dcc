"""The tables of docs/scale: what to expect from 1 to 1,000 GPUs, computed from measured updates on one."""

from __future__ import annotations

from recollect.runs.scaling import INFINIBAND, LINKS, SHARE, update_seconds
from tables import Result, Say, join, table

COUNTS = (1, 2, 8, 64, 256, 1000)
SAME = (1, 2, 4, 8, 16)  # GPUs that share one batch
BATCH = 512  # its rows
SIZES = {"GPT-2, 124M": 124_439_808, "1 B": 10**9, "7 B": 7 * 10**9, "70 B": 70 * 10**9}
BYTES = 16  # of a parameter: weight, gradient and AdamW's two moments in float32
GPU = 139 * 2**30  # bytes of an H200

LINKS_NOTE = (
    "Nominal rates of each GPU in one direction, of which {share:.0%} are assumed to be reached. Machines of {devices} "
    "GPUs."
)
GROWING_NOTE = (
    "Each GPU keeps its rows, so that the batch grows with their number: tokens/s of copies as a multiple of one "
    "GPU's. The update on one H200 is measured, all else computed; GPT-2's is not captured as a CUDA graph, the "
    "others' are."
)
SAME_NOTE = (
    "The same batch of {batch} rows of 1024 tokens, on each GPU in parts of 32, of which the last is synchronised; ms "
    "an update, and how many times faster than one GPU."
)
MEMORY_NOTE = (
    "GiB on each GPU of weights, gradients and AdamW's moments in float32, without activations; an H200 has {gpu}. "
    "Computed."
)
CHECK_NOTE = (
    "Two processes of one core each, a Transformer of {parameters:,} parameters, medians of {rounds} rounds. The "
    "link's rate, {rate:.2f} GB/s, is measured in the same run; expected: the model with that rate."
)
LEADS = {"scale_check": "The model beside what was measured:"}
CHINESE = {
    LEADS["scale_check"]: "模型与实测对比：",
    "links": "连接",
    "inside a machine": "机内",
    "between machines": "机间",
    "NVLink, InfiniBand": "NVLink、InfiniBand",
    "PCIe, Ethernet": "PCIe、以太网",
    "tokens": "每次更新的 token",
    "ms on one": "单卡毫秒",
    "GPUs": "GPU 数",
    "copies": "副本（DDP）",
    "sharded": "分片（FSDP）",
    "two processes": "双进程",
    "measured, ms": "实测，毫秒",
    "expected, ms": "模型预计，毫秒",
    "computing alone": "只计算",
    LINKS_NOTE: "每块 GPU 单向的标称带宽，假定能达到其中的 {share:.0%}。每台机器 {devices} 块 GPU。",
    GROWING_NOTE: "每块 GPU 的行数不变，总批大小随 GPU 数增长；数字为副本方式的吞吐量相对单卡的倍数。"
    "单块 H200 上的更新用时为实测，其余由模型计算；GPT-2 的更新没有捕获为 CUDA graph，其余三个有。",
    SAME_NOTE: "总批大小固定为 {batch} 行 × 1024 token，每块 GPU 以 32 行为一小批累积，只在最后一小批同步；"
    "每格为每次更新的毫秒数，括号内为相对单卡的倍数。",
    MEMORY_NOTE: "每块 GPU 上权重、梯度和 AdamW 两个动量的 GiB 数（float32，不含激活）；一块 H200 有 {gpu} GiB。"
    "由公式计算。",
    CHECK_NOTE: "两个进程各占一核，{parameters:,} 个参数的 Transformer，{rounds} 轮取中位数。"
    "链路带宽 {rate:.2f} GB/s 在同一次运行中测得；预计值由模型代入该带宽得出。",
}


def links_block(result: Result, say: Say) -> str:
    head = [say("links"), say("inside a machine"), say("between machines")]
    rows = [[say(one.name), f"{one.inside / 1e9:.3g} GB/s", f"{one.between / 1e9:.3g} GB/s"] for one in LINKS]
    note = say(LINKS_NOTE).format(share=SHARE, devices=INFINIBAND.devices)
    return f"{table(head, rows, texts=1)}\n\n<sub>{note}</sub>"


def growing_block(result: Result, say: Say) -> str:
    head = [say("training"), say("parameters"), say("tokens"), say("ms on one"), say("links")]
    head += [f"{count:,}" for count in COUNTS[1:]]
    rows = []
    for one in result["rows"]:
        measured, size = one["seconds"], 4 * one["parameters"]
        for links in LINKS:
            times = [update_seconds(measured, size, n, links, is_captured=one["is_captured"]) for n in COUNTS[1:]]
            gains = [n * one["seconds"] / t for n, t in zip(COUNTS[1:], times, strict=True)]
            first = [one["name"], f"{one['parameters'] / 1e6:.1f} M", f"{one['tokens']:,}"]
            rows.append([*first, f"{one['seconds'] * 1e3:.1f}", say(links.name), *(f"{gain:,.1f}" for gain in gains)])
    return f"{table(head, rows, texts=1)}\n\n<sub>{say(GROWING_NOTE)}</sub>"


def same_block(result: Result, say: Say) -> str:
    one = next(row for row in result["rows"] if row["rows"] == 32)
    whole = one["seconds"] * BATCH / one["rows"]
    head = [say("GPUs"), *(f"{say(links.name)}, {say(kind)}" for links in LINKS for kind in ("copies", "sharded"))]
    rows = []
    for count in SAME:
        cells = []
        for links in LINKS:
            for is_sharded in (False, True):
                parts = BATCH // one["rows"] // count
                size = 4 * one["parameters"]
                found = update_seconds(whole / count, size, count, links, is_sharded=is_sharded, batches=parts)
                cells.append(f"{found * 1e3:.0f} ({whole / found:.2f})")
        rows.append([str(count), *cells])
    return f"{table(head, rows, texts=0)}\n\n<sub>{say(SAME_NOTE).format(batch=BATCH)}</sub>"


def memory_block(result: Result, say: Say) -> str:
    head = [say("model"), say("copies"), *(f"{say('sharded')}, {count:,}" for count in COUNTS[1:])]
    rows = []
    for name, count in SIZES.items():
        cells = [BYTES * count / 2**30 / n for n in COUNTS]
        rows.append([name, *(f"{gib:,.1f}" for gib in cells)])
    return f"{table(head, rows, texts=1)}\n\n<sub>{say(MEMORY_NOTE).format(gpu=GPU // 2**30)}</sub>"


def check_block(result: Result, say: Say) -> str:
    (found,) = result["rows"]
    head = [say("two processes"), say("measured, ms"), say("expected, ms")]
    rows = [[say("computing alone"), f"{found['computing'] * 1e3:.0f}", ""]]
    for name in ("copies", "sharded"):
        rows.append([say(name), f"{found[name] * 1e3:.0f}", f"{found[f'{name}_expected'] * 1e3:.0f}"])
    facts = {"parameters": found["parameters"], "rounds": found["rounds"], "rate": found["rate"] / 1e9}
    return join(table(head, rows, texts=1), say(CHECK_NOTE).format(**facts), result, say)


BLOCKS = {
    "scale_links": ("scale", links_block),
    "scale_growing": ("scale", growing_block),
    "scale_same": ("scale", same_block),
    "scale_memory": ("scale", memory_block),
    "scale_check": ("scale-check", check_block),
}
