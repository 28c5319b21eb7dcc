"""The family of attentions by what varies in it; what the traced model has is marked."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.core.types import JsonObject
from recollect.inspection.diagram import begun
from recollect.inspection.trace import Trace
from recollect.inspection.words import Say
from recollect.layers.attention.alignment import ALIGNMENTS
from recollect.layers.attention.score import SCORES
from recollect.views.picture import Picture

CHINESE = {
    "additive": "加性",
    "dot": "点积",
    "scaled": "缩放点积",
    "general": "双线性",
    "biased-general": "带偏置的双线性",
    "activated-general": "带激活的双线性",
    "cosine": "余弦",
    "distance": "距离",
    "soft": "软对齐",
    "hard": "硬对齐",
    "local-monotonic": "局部（单调）",
    "local-predictive": "局部（预测）",
    "reinforced": "强化",
}
FEATURES = {  # the classes of each member
    ("one source", "单一来源"): (),
    ("co-attention", "协同注意力"): (
        "ParallelCoAttention", "AlternatingCoAttention", "InteractiveCoAttention", "MultiGrainedCoAttention",
    ),
    ("rotatory", "旋转式"): ("RotatoryAttention",),
    ("attention via attention", "经由注意力的注意力"): ("AttentionViaAttention",),
    ("hierarchical", "层次式"): ("Hierarchical",),
    ("several embeddings", "多重表示"): ("MultiRepresentational",),
}  # fmt: skip
QUERIES = {
    ("one head", "单头"): (),
    ("multi-head", "多头"): ("MultiHead",),
    ("multi-hop", "多跳"): ("MultiHop",),
    ("self-attentive", "自注意查询"): ("SelfAttentive", "AttentionPool"),
    ("capsules", "胶囊"): ("Capsules",),
}


def attention_family(traces: Sequence[Trace], say: Say) -> Picture:
    """Return the family of attentions: features, scores, alignments, queries; those of the traced model are filled."""
    trace = traces[0] if traces else None
    own = members_of(trace) if trace is not None else set()
    columns = (
        (say("features", "特征"), "accent", [(english, say(english, chinese)) for english, chinese in FEATURES]),
        (say("score", "打分函数"), "blue", [(name, say(name, CHINESE[name])) for name in SCORES]),
        (say("alignment", "对齐方式"), "orange", [(name, say(name, CHINESE[name])) for name in ALIGNMENTS]),
        (say("query", "查询"), "violet", [(english, say(english, chinese)) for english, chinese in QUERIES]),
    )
    title = say("The attention family", "注意力家族")
    if trace is not None:
        name = trace.model.get("name", "")
        title = say(f"The attention family: what {name} has", f"注意力家族：{name} 所用的成员")
    scene = begun(title, 860, 130 + 42 * max(len(names) for _, _, names in columns))
    scene.words(430, 70, "F → K, V      e = score(q, K)      a = align(e)      c = a V", size=15, colour="soft")
    for i, (head, colour, names) in enumerate(columns):
        x = 28 + 206 * i
        scene.words(x + 92, 104, head, size=15, bold=True, colour=colour)
        for j, (member, words) in enumerate(names):
            is_own = member in own
            ink, fill = ("paper", colour) if is_own else ("ink", "paper")
            scene.box(x, 122 + 42 * j, 186, 32, words, fill=fill, line=colour, size=13, colour=ink, bold=is_own)
    return Picture(title, scene)


def members_of(trace: Trace) -> set[str]:
    """Return the English names of the members that a traced model has; raise where it does not attend."""
    classes = set(trace.model.get("structure", {}).get("attention", ()))
    attending = [one for one in trace.layers if f"{one['name']}.weights" in trace]
    if not classes or not (attending or "pool.weights" in trace):
        got = trace.model.get("name", "these arrays")
        raise ValueError(
            f"attention-family: got {got}, which has no attention; without a trace the family is drawn alone"
        )
    found = {name for name, kind in (SCORES | ALIGNMENTS).items() if kind.__name__ in classes}
    for table in (FEATURES, QUERIES):
        found |= {english for (english, _), kinds in table.items() if classes & set(kinds)}
    if not found & {english for english, _ in FEATURES}:
        found.add("one source")
    for one in attending:
        found |= _of_layer(one)
    return found | ({"soft"} if "self-attentive" in found else set())


def _of_layer(facts: JsonObject) -> set[str]:
    """Return the members of one layer: dot products and softmax are built into self-attention and cross-attention."""
    found = {"multi-head" if facts.get("heads", 1) > 1 else "one head"}
    if facts["kind"] in ("SelfAttention", "BasicSelfAttention", "CrossAttention"):
        found.add("scaled" if facts.get("scaled") else "dot")
        found.add("local-monotonic" if facts.get("window") else "soft")
    return found
