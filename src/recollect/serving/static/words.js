// Every word of the page, in both languages.

const WORDS = {
  title: ["Look inside", "看见记忆"],
  subtitle: ["One sentence runs through the whole line of memories.", "同一句话，流过整条记忆之路。"],
  read: ["Read", "阅读"], reach: ["Reach", "回溯"], write: ["Write", "续写"], train: ["Train", "训练"],
  views: ["Views", "视图"], lesson: ["Lesson", "课程"], share: ["Copy link", "复制链接"], copied: ["Copied", "已复制"],
  theme: ["Light or dark", "浅色或深色"], help: ["Keys", "快捷键"],
  keys: [
    "Space plays and stops · ← → one symbol · Home, End first and last · Enter keeps a symbol in view · Esc lets it go · 1–4 views · L lesson",
    "空格：播放与停止 · ← →：逐个符号 · Home、End：首尾 · 回车：固定一个符号 · Esc：取消 · 1–4：切换视图 · L：课程",
  ],
  sentence: ["The sentence, symbol by symbol", "这句话，逐个符号"],
  play: ["Play", "播放"], pause: ["Pause", "暂停"], back: ["Previous symbol", "上一个符号"], forward: ["Next symbol", "下一个符号"],
  position: ["Position in the sentence", "在句中的位置"], speed: ["Speed", "速度"],
  models: ["Models", "模型"], model: ["model", "模型"], parameters: ["parameters", "个参数"], ngrams: ["n-grams", "个 n 元组"],
  symbolOf: ["symbol {0} of {1}", "第 {0} 个符号，共 {1} 个"],
  skipped: ["The first {0} symbols were read into memory; the page shows the last {1}.", "前 {0} 个符号已读入记忆；页面显示最后 {1} 个。"],
  memory: ["memory", "记忆"], bytes: ["bytes", "字节"],
  grows: ["grows with every symbol", "随每个符号增长"], stays: ["the same size for ever", "大小恒定不变"],
  saturates: ["grows, then stays", "先增长，后不变"], none: ["remembers nothing", "不作记忆"],
  next: ["what comes next", "接下来是什么"], after: ["after “{0}”", "在“{0}”之后"], actual: ["what really came", "实际的下一个"],
  reachField: ["reach: what this prediction depends on", "回溯：这次预测依赖什么"],
  reachFrom: ["reach of “{0}” into later predictions", "“{0}”对后续预测的影响"],
  noReach: ["it counts and has no gradient: shown is what leaving a symbol out changes", "它靠计数，没有梯度：这里显示去掉某个符号带来的变化"],
  map: ["attention map: each column is where one symbol looked", "注意力图：每一列是一个符号看向哪里"],
  mapAxis: ["down: from the first symbol to the last", "自上而下：第一个到最后一个符号"], unitsAxis: ["one row a unit", "每行一个单元"],
  movementAxis: ["one row a head", "每行一个头"], legendNear: ["little", "少"], legendFar: ["far", "多"],
  early: ["gradients explain the last {0} predictions only", "梯度只解释最后 {0} 次预测"],
  tooLarge: ["too large to compute gradients on this page; a shorter sentence may do", "模型太大，本页不计算梯度；可换更短的句子"],
  recent: ["all that it remembers", "它记得的全部"], hidden: ["hidden state", "隐藏状态"], cell: ["cell state", "单元状态"],
  movement: ["how far its weights have moved, by head", "各头的权重移动了多远"], context: ["symbols of context it has counted before", "见过的最长上下文"],
  gates: ["gates, mean over units", "门（各单元均值）"], attention: ["attention from here", "此处的注意力"],
  inner: ["inner loss: before and after learning the symbol", "内部损失：学习该符号之前与之后"],
  before: ["before", "之前"], afterwards: ["after", "之后"], head: ["Head", "头"], allHeads: ["mean of all heads", "所有头的均值"],
  input_gate: ["write", "写入"], forget_gate: ["keep", "保留"], output_gate: ["show", "输出"],
  reset_gate: ["reset", "重置"], update_gate: ["keep", "保留"],
  contextTitle: ["longest context known", "已知的最长上下文"],
  knobs: ["Turn a knob", "调一调"], trained: ["as trained", "训练所得"], reset: ["Reset", "复位"],
  liveOnly: [
    "Knobs turn live only: this text is longer than 128 symbols, or the model larger than 30 million parameters. {0}",
    "旋钮只能实时调：文字超过 128 个符号，或模型超过三千万参数。{0}",
  ],
  oneKnob: ["One knob at a time in this file. Several at once: recollect inspect --live", "此文件中每次调一个。同时调多个：recollect inspect --live"],
  computing: ["computing …", "计算中…"],
  temperature: ["Temperature", "温度"], forget: ["forget-gate bias", "遗忘门偏置"],
  scale: ["scale 1/√k", "缩放 1/√k"], on: ["on", "开"], off: ["off", "关"], window: ["attention window", "注意力窗口"], all: ["all", "全部"],
  rate: ["inner learning rate", "内部学习率"], knock: ["knock out", "敲除"], nobody: ["nothing", "无"],
  headNo: ["head {0} of layer {1}", "第 {1} 层第 {0} 头"], gateNo: ["gate “{0}” of layer {1}", "第 {1} 层“{0}”门"],
  reachTitle: ["How far back does a gradient reach?", "梯度能回溯多远？"],
  reachText: [
    "Mean size of the gradient of a prediction with respect to a symbol, by the distance between them. A straight line down is exponential forgetting; what stays level is remembered.",
    "预测对某个符号的梯度大小的均值，按两者距离排列。直线下降意味着指数式遗忘；保持水平的才被记住。",
  ],
  withoutGradient: ["Not in the figure, having no gradient here: {0}.", "未画入图中（此处没有梯度）：{0}。"], comma: [", ", "、"],
  reachPinned: ["The reach of “{0}”, symbol {1}: how strongly each later prediction still depends on it.", "“{0}”（第 {1} 个符号）的影响：之后的每次预测还有多依赖它。"],
  distance: ["distance in symbols", "距离（符号数）"], gradient: ["gradient", "梯度"],
  labTitle: ["The same figure, before any training", "同一张图，训练之前"],
  labText: [
    "New models, random weights. Move the bias of the LSTM's forget gate: from 0 to 4 its gradient at distance {0} changes by {1} orders of magnitude.",
    "全新模型，随机权重。移动 LSTM 遗忘门的偏置：从 0 到 4，距离 {0} 处的梯度变化 {1} 个数量级。",
  ],
  labBias: ["Forget-gate bias of the untrained LSTM", "未训练 LSTM 的遗忘门偏置"],
  labNow: ["LSTM at distance {0}: {1}", "LSTM 在距离 {0} 处：{1}"],
  table: ["The numbers", "数值表"],
  writeTitle: ["One beginning, every model", "同一个开头，每个模型"],
  writeText: [
    "Each model continues from its own memory of the same prompt. Hand the text over in the middle: the next model reads what was written so far into a memory of its own kind.",
    "每个模型都从自己对同一提示的记忆出发续写。也可以中途换手：接手的模型先把已写的文字读入自己的那种记忆。",
  ],
  prompt: ["Prompt", "提示"], start: ["Write", "开始续写"], again: ["Write again", "再写一次"], stop: ["Stop", "停止"],
  handOver: ["Hand over to", "中途换成"], nobodyElse: ["nobody", "不换"], handed: ["{0} goes from here", "由 {0} 接着写"],
  inFile: ["Written beforehand. Any prompt, streamed as it is generated: recollect inspect --live", "事先写好的。任意提示、边生成边显示：recollect inspect --live"],
  trainTitle: ["How they got here", "它们是怎样学会的"],
  trainText: ["Loss on held-out text while they trained, and what each wrote at that moment.", "训练过程中在验证文本上的损失，以及当时各自写出的样本。"],
  trainLive: ["This page looks into the run folders every two seconds; a training in another process appears here, also one that begins now.", "页面每两秒查看一次运行目录；其他进程中的训练会显示在这里，包括刚开始的训练。"],
  seconds: ["training seconds", "训练秒数"], loss: ["held-out loss, nats", "验证损失（奈特）"], samples: ["Samples, from the first to the last evaluation", "样本：从第一次评估到最后一次"],
  noRuns: ["These models have no training log.", "这些模型没有训练日志。"], running: ["training now", "正在训练"], atStep: ["update {0}, loss {1}", "第 {0} 步，损失 {1}"],
  noSample: ["no evaluation yet", "尚无评估"],
  counted: ["counted in one pass", "一遍计数完成"], countedLoss: ["counted in one pass, loss {0}", "一遍计数完成，损失 {0}"],
  text: ["Your sentence", "你的句子"], go: ["Read it", "读这句"], emptyText: ["An empty sentence: nothing was read, and nothing is remembered yet.", "空句子：什么都没读，也还什么都没记住。"],
  opening: ["The models read the example …", "模型正在阅读示例…"], absent: ["Not on this page: {0}.", "本页没有：{0}。"], or: [" or ", "或"],
  lost: ["The server does not answer. Start it again: {0}", "服务器没有响应。请重新启动：{0}"],
  failed: ["Not computed: {0}", "未能计算：{0}"],
  unknown: ["not in the vocabulary", "不在词表中"], close: ["Close", "关闭"], previous: ["Back", "上一步"], following: ["Next", "下一步"], stepOf: ["{0} of {1}", "{0} / {1}"],
  made: ["Made {0} on {1}", "{0} 生成于 {1}"], live: ["live", "实时"], notIn: ["{0}: {1}", "{0}：{1}"],
  speaks: ["{0}: “{1}”. {2}", "{0}：“{1}”。{2}"], expects: ["{0} expects “{1}”, {2}", "{0} 预计“{1}”，{2}"],
  space: ["space", "空格"], newline: ["line end", "换行"], legendLow: ["weak", "弱"], legendHigh: ["strong", "强"],
};

let language = "en";

export function speak(lang) { language = lang; }

export function lang() { return language; }

/** Return words in the page's language, with {0}, {1} … replaced. */
export function t(key, ...values) {
  const words = WORDS[key] ?? [key, key];
  return words[language === "zh" ? 1 : 0].replace(/\{(\d)\}/g, (_, n) => values[n]);
}

/** Return the one of an object's en and zh that is asked for. */
export function own(both) { return typeof both === "string" ? both : both?.[language] ?? both?.en ?? ""; }

/** Return a symbol so that it can be seen: a blank is ␣, a line end ↵. */
export function visible(text) {
  return text === "" ? "∅" : text.replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/\r/g, "␍");
}

/** Return a symbol so that it can be read aloud. */
export function aloud(text) {
  return text === " " ? t("space") : text === "\n" ? t("newline") : text;
}
