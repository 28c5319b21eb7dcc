// The story in ten short steps, each of which drives the page.

import { h, put } from "./dom.js";
import { own, t } from "./words.js";

const NAMES = { markov: "Markov", rnn: "RNN", lstm: "LSTM", gru: "GRU", transformer: "Transformer", "ttt-linear": "TTT", "ttt-mlp": "TTT" };

/**
 * at: share of the sentence that has been read; show: families that stand side by side; needs: those that the words are
 * about, one of which suffices; look: the part of a column that the words point at; turned: words for a turned knob.
 */
export const STEPS = [
  {
    at: 0.35, view: "read", show: null, play: true, look: ".next",
    en: ["A sentence arrives", "No model sees the whole sentence at once. Each reads one symbol, updates its memory, and bets on the next. Watch the bars: the bet. Watch the bytes: the memory."],
    zh: ["句子一个符号一个符号地到来", "没有模型能一眼看完整句。每个模型读入一个符号，更新记忆，再押注下一个。看条形：那是押注；看字节：那是记忆。"],
  },
  {
    at: 0.5, view: "read", show: ["markov", "window"], needs: ["markov"], look: ".state",
    en: ["1913: remember the last few", "A Markov chain keeps the last symbols and counts what followed them before. Its memory never grows, and all that is older is simply gone."],
    zh: ["1913：记住最近几个", "马尔可夫链只留住最后几个符号，数一数它们后面曾出现过什么。记忆从不增长，更早的一切都消失了。"],
  },
  {
    at: 0.6, view: "read", show: ["markov", "rnn"], needs: ["rnn"], look: ".state",
    en: ["1990: one vector, rewritten", "A recurrent network folds everything it has read into one vector. In theory nothing is lost. But the vector is rewritten at every step: look at how quickly its columns change."],
    zh: ["1990：一个不断重写的向量", "循环网络把读过的一切折进一个向量。理论上什么都没丢，可每一步都在重写它：看它的列变化得多快。"],
  },
  {
    at: 0.6, view: "reach", show: ["rnn", "window"], needs: ["rnn"],
    en: ["The price: forgetting is exponential", "The gradient of a prediction with respect to an earlier symbol passes through one rewriting per step. On a logarithmic axis its size falls along a straight line."],
    zh: ["代价：遗忘是指数式的", "预测对早先符号的梯度，每一步都要穿过一次重写。在对数坐标上，它沿直线下降。"],
  },
  {
    at: 0.6, view: "read", show: ["rnn", "lstm", "gru"], needs: ["lstm", "gru"], look: ".mechanism",
    en: ["1997: gates protect it", "The LSTM adds a cell that is only multiplied by a gate and added to. Where “keep” is near 100 %, the past passes unharmed. The GRU does the same with fewer gates."],
    zh: ["1997：用门来保护", "LSTM 增加一个单元状态，只乘以门、再相加。“保留”接近 100% 时，过去毫发无损地通过。GRU 用更少的门做到同样的事。"],
  },
  {
    at: 0.6, view: "reach", show: ["rnn", "gru", "lstm"], bias: 0, lab: true,
    en: ["One number decides how far", "Before training, the bias of the forget gate alone sets the slope. Move the slider below from 0 to 4, and see the gradient at distance 48 rise by orders of magnitude."],
    zh: ["一个数决定能走多远", "训练之前，仅遗忘门的偏置就决定了斜率。把下方滑块从 0 移到 4，看距离 48 处的梯度上升多少个数量级。"],
  },
  {
    at: 0.75, view: "read", show: ["lstm", "transformer"], needs: ["transformer"], look: ".ticker",
    en: ["2014–2017: keep everything", "Attention stops compressing. It keeps a list of all it has read and looks back directly, any distance in one step. The price is in the ticker: its memory grows with every symbol."],
    zh: ["2014–2017：全部留下", "注意力不再压缩。它保存读过的一切，直接回看，任何距离都只需一步。代价在字节数里：记忆随每个符号增长。"],
  },
  {
    at: 0.75, view: "read", show: ["transformer"], needs: ["transformer"], look: ".mechanism", knob: ["scale", "0"],
    en: ["Details that matter", "Without the scale 1/√k the scores are too large and attention collapses onto few symbols."],
    zh: ["要紧的细节", "没有 1/√k 的缩放，得分过大，注意力会坍缩到少数符号上。"],
    turned: { en: " Here it has been switched off. Try its window, or knock out a head.", zh: "这里已把它关掉。再试试窗口，或敲除一个头。" },
  },
  {
    at: 0.8, view: "read", show: ["linear-attention", "ttt-linear", "ttt-mlp"], needs: ["ttt-linear", "ttt-mlp"], look: ".mechanism",
    en: ["2024: a memory that learns", "In test-time training the memory is a small model, trained on every symbol while it reads. The inner loss after a symbol lies below the loss before it. And the bytes stay the same."],
    zh: ["2024：会学习的记忆", "测试时训练把记忆变成一个小模型，边读边在每个符号上训练。学习之后的内部损失低于之前，而字节数保持不变。"],
  },
  {
    at: 1, view: "write", show: null,
    en: ["Your turn", "The same beginning, continued by every memory. Hand the text from one to another in the middle, then go back to Read and turn every knob."],
    zh: ["轮到你了", "同一个开头，由每种记忆续写。中途让它们换手，再回到“阅读”，把每个旋钮都转一转。"],
  },
];

/** The panel of the lesson. */
export class Lesson {
  constructor(app) {
    this.app = app;
    this.count = h("p", { class: "quiet" });
    this.title = h("h2", { tabindex: -1 });
    this.words = h("p");
    this.absent = h("p", { class: "quiet" });
    this.backward = h("button", { type: "button", text: t("previous"), onclick: () => this.go(this.number - 1) });
    this.forward = h("button", { type: "button", class: "primary", text: t("following"), onclick: () => this.go(this.number + 1) });
    const close = h("button", { type: "button", class: "round", text: "×", "aria-label": t("close"), onclick: () => app.state.set({ lesson: 0 }) });
    this.dots = h("p", { class: "steps", "aria-hidden": "true" }, STEPS.map(() => h("i")));
    this.element = h("aside", { class: "lesson", "aria-label": t("lesson"), hidden: true }, h("header", {}, this.count, this.dots, close), this.title, this.words, this.absent, h("footer", {}, this.backward, this.forward));
    this.element.addEventListener("keydown", (event) => { if (event.key === "Escape") app.state.set({ lesson: 0 }); });
  }

  get number() { return this.app.state.get("lesson"); }

  get known() { return this.app.exhibit.columns.filter((one) => !one.problem); }

  /** Return the columns that a step's words are about; null where they are about no family. */
  meant(step) { return step.needs ? this.known.filter((one) => step.needs.includes(one.family)) : null; }

  /** Return the column whose knob a step turns, where it can be turned. */
  turnable(step) {
    return step.knob && this.meant(step).find((one) => this.app.source.turns(one) && one.knobs.some((knob) => knob.id === step.knob[0]));
  }

  async go(number) {
    if (number < 1 || number > STEPS.length) { this.app.state.set({ lesson: 0 }); return; }
    const step = STEPS[number - 1];
    const { app } = this;
    app.sentence.stop();
    const beside = step.show && this.meant(step)?.length !== 0 ? this.known.filter((one) => step.show.includes(one.family)) : [];
    for (const column of this.known) if (Object.keys(app.state.knobsOf(column.id)).length) app.turn(column, {});
    const last = app.main.symbols.texts.length - 1;
    app.state.set({ lesson: number, view: step.view, shown: beside.map((one) => one.id).join(","), pin: -1, t: Math.max(0, Math.round(step.at * last)), ...(step.lab ? { bias: step.bias } : {}) });
    this.update();
    this.title.focus({ preventScroll: true });
    const column = this.turnable(step);
    if (column) {
      app.opened.add(column.id);
      await app.turn(column, { [step.knob[0]]: step.knob[1] });
    }
    if (step.play) { app.state.set({ t: 0 }); app.sentence.play(); }
    this.point(step);
  }

  /** Scroll to what a step's words point at, between the sentence above and the panel where it lies below. */
  point(step) {
    const { app } = this;
    const below = this.element.offsetWidth > innerWidth / 2 ? this.element.offsetHeight : 0;
    document.documentElement.style.setProperty("scroll-padding-block", `${app.sentence.element.offsetHeight + 8}px ${below + 16}px`);
    scrollTo({ top: 0 });
    const column = (this.meant(step) ?? app.columns.filter((one) => !one.problem))[0];
    if (step.lab) document.querySelector(".lab")?.scrollIntoView({ block: "start" });
    else if (step.view === "reach") document.querySelector("#view-reach .chart")?.scrollIntoView({ block: "nearest" });
    else if (step.look && column) document.querySelector(`[data-column="${column.id}"] ${step.look}`)?.scrollIntoView({ block: "nearest" });
  }

  update() {
    const number = this.number;
    this.element.hidden = number < 1;
    document.body.classList.toggle("in-lesson", number > 0);
    if (number < 1) {
      document.documentElement.style.removeProperty("scroll-padding-block");
      return;
    }
    const step = STEPS[Math.min(number, STEPS.length) - 1];
    const [title, words] = own(step);
    const isAbsent = this.meant(step)?.length === 0;
    this.absent.textContent = isAbsent ? t("absent", [...new Set(step.needs.map((family) => NAMES[family]))].join(t("or"))) : "";
    this.absent.hidden = !isAbsent;
    this.count.textContent = t("stepOf", number, STEPS.length);
    put(this.title, title);
    put(this.words, words + (this.turnable(step) ? own(step.turned) : ""));
    [...this.dots.children].forEach((dot, i) => dot.classList.toggle("done", i < number));
    this.backward.disabled = number === 1;
    this.forward.textContent = number === STEPS.length ? t("close") : t("following");
  }
}
