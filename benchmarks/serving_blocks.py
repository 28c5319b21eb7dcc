"""The table of docs/speed on the server under load."""

from __future__ import annotations

from tables import Result, Say, join, table

SERVING_NOTE = (
    "`recollect serve` on loopback, {streams} clients that stream one text after the other for {seconds:.0f} s: "
    "prompts of 1 to 299 characters, 16 to 128 to generate; batch 1 for a quarter of the time before and after. "
    "Symbols/s of all streams, and the ratio also per second of the server's processor time, since the machine had "
    "other work (a load of {load}). Gap: between two symbols of a stream. Streams: compared with `generate` of each "
    "alone; {rounded} differ from where a draw lay within 1e-3 of the border between two symbols, {wrong} elsewhere, "
    "with {errors} errors. Of {requests} requests at once {refused} were refused with 429 and Retry-After, all others "
    "answered. Resident memory before and after, MiB: {resident}; the batches held {held:.0f} bytes afterwards."
)
LEADS = {"serving": "Under load, beside the same server limited to one row:"}
HEAD = ("model", "parameters", "batch 1", "batch {}", "times", "times, processor", "gap, p50", "p99", "streams")
CHINESE = {
    LEADS["serving"]: "负载测试，与限制为单行批次的同一服务器对比：",
    SERVING_NOTE: "`recollect serve`，仅回环地址，{streams} 个客户端连续流式请求 {seconds:.0f} 秒："
    "提示 1 至 299 个字符，生成 16 至 128 个；批大小 1 在前后各测四分之一的时间。数值为所有流合计的符号/秒；"
    "由于机器上有其他程序（负载 {load}），另给出按服务器处理器时间计算的比值。间隔：同一流中相邻两个符号的间隔。"
    "流：逐一与单独 `generate` 的结果比较；{rounded} 条从抽样值距两个符号的边界不足 1e-3 处开始不同，"
    "{wrong} 条在其他位置不同，错误 {errors} 个。同时发出 {requests} 个请求时，"
    "{refused} 个以 429 和 Retry-After 拒绝，其余全部得到回答。"
    "负载前后的常驻内存（MiB）：{resident}；之后批次占用 {held:.0f} 字节。",
    "batch 1": "批大小 1",
    "batch {}": "批大小 {}",
    "times": "倍数",
    "times, processor": "倍数（按处理器时间）",
    "gap, p50": "间隔 p50",
    "p99": "间隔 p99",
    "streams": "流",
}


def serving_block(result: Result, say: Say) -> str:
    """Return throughput at both batch sizes, the gaps between symbols, and what became of the streams."""
    rows = result["rows"]
    cells = []
    for row in rows:
        alone = sum(one["symbols_per_s"] for one in row["alone"]) / len(row["alone"])
        speeds = [f"{row['parameters']:,}", f"{alone:,.0f}", f"{row['together']['symbols_per_s']:,.0f}"]
        times = [f"{row['times_symbols_per_s']:.2f}", f"{row['times_symbols_per_cpu_s']:.2f}"]
        gaps = [f"{row['together'][name]:.0f} ms" for name in ("gap_ms_p50", "gap_ms_p99")]
        cells.append([row["model"], *speeds, *times, *gaps, f"{row['streams']:,}"])
    head = [say(word).format(result["batch"]) for word in HEAD]
    note = say(SERVING_NOTE).format(**facts_of(result))
    return join(table(head, cells, texts=1), note, result, say)


def facts_of(result: Result) -> Result:
    """Return what the note names, summed over the models."""
    rows = result["rows"]
    sums = {name: sum(row[name] for row in rows) for name in ("rounded", "wrong", "errors")}
    sums |= {name: sum(row["overload"][name] for row in rows) for name in ("requests", "refused")}
    resident = ", ".join(f"{row['resident_mib']['before']:.0f} → {row['resident_mib']['after']:.0f}" for row in rows)
    loads = ", ".join(f"{row['load']:.0f}" for row in rows)
    held = sum(row["batch_bytes_afterwards"] for row in rows)
    return {**result, **sums, "resident": resident, "load": loads, "held": held}
