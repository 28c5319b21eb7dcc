"""Why a claim is not shown: what the measurement leaves open. A test demands a reason wherever nothing was shown."""

from __future__ import annotations

from collections.abc import Mapping

from recollect.story.claim import Claim, Result
from recollect.views.bilingual import Bilingual

REASONS: Mapping[str, Bilingual] = {
    "C21": Bilingual(
        "the gradient before training and the recall after it go together, but what an orthogonal start adds differs "
        "too much between seeds to be above one half",
        "训练前的梯度与训练后的回忆确实相关，但正交初始化带来的提升在各种子间差异太大，不能断定高于一半",
    ),
    "C27": Bilingual(
        "a second path cures it and leaving out the tanh does not; an orthogonal start on the same 50 tanh does in "
        "four seeds of five, so its interval reaches below one half and what the cause is stays open",
        "增加第二条通路有效，去掉 tanh 无效；同样经过 50 个 tanh 的正交初始化在五个种子中有四个有效，"
        "因此区间下端低于一半，原因仍未定",
    ),
    "C33": Bilingual(
        "the held-out losses lie within a few hundredths of a nat of each other, as far apart as those of two seeds",
        "各留出损失只相差百分之几奈特，与种子之间的差异相当",
    ),
    "C79": Bilingual(
        "models and text are too small: beyond 128 characters none of the three gains anything that could be compared",
        "模型与文本都太小：超过 128 个字符后，三者都没有可比较的收益",
    ),
    "C81": Bilingual(
        "what pre-training adds to LSTM and GRU differs so much between seeds that neither little nor much is "
        "excluded; that GPT and BERT gain more is shown",
        "预训练给 LSTM、GRU 带来的增益在各种子间差异很大，“有限”与“不小”都不能排除；GPT 与 BERT 增益更多则已测出",
    ),
    "C82": Bilingual(
        "neither model's gradient names the deciding words reliably, and the interval of the difference holds zero",
        "两种模型的梯度都不能可靠地指出起决定作用的词，差值的区间包含零",
    ),
    "C83": Bilingual(
        "the parts disagree: with more text the LSTM's lead shrinks to within its interval, and in captions chrF "
        "favours the Transformer, BLEU the recurrent decoder",
        "各部分互相矛盾：文本增多时 LSTM 的领先缩小到区间之内；图像描述中 chrF 支持 Transformer，BLEU 支持循环解码器",
    ),
    "C85": Bilingual(
        "the error rate is far below the diagonal's, but its interval reaches above 0.34, the rate that the rule takes "
        "from Luong et al.",
        "错误率远低于对角线，但区间上端超过规则所取的 0.34（Luong 等的结果）",
    ),
    "E39": Bilingual(
        "C81 does not decide it on a small scale; the published figures do, and stand under Expected",
        "C81 在小规模上不能判定；已发表的数据可以，见“预期”",
    ),
}
LEAKED = Bilingual("the leak check failed", "泄漏检查未通过")
UNDECIDED = Bilingual("an interval that the rule needs does not decide", "规则所需的区间不足以判定")


def reason(claim: Claim, result: Result | None) -> Bilingual | None:
    """Return why a claim is not shown; None where it is, or where nothing is measured."""
    if result is None or result.verdict != "not shown":
        return None
    return REASONS.get(claim.id, UNDECIDED) if result.leak.passed else LEAKED
