// What one model did with the sentence: the library's arrays by the library's names.

import { row, unpack } from "./numbers.js";

/** A column's arrays, and the questions that the page asks them. */
export class Reading {
  constructor(data, column, temperatures) {
    Object.assign(this, { data, column, temperatures, arrays: data.arrays });
    this.steps = data.tokens.length;
    this.places = new Map(Array.from(this.values("outcome.at") ?? [], (at, outcome) => [at, outcome]));
  }

  values(name) { return unpack(this.arrays[name])?.values ?? null; }

  /** Return [{ text, share, isActual }] after symbol `at`, likeliest first, and the actual next one wherever it ranks. */
  next(at, temperature, most = 6) {
    const place = this.temperatures.indexOf(temperature);
    const norm = row(this.arrays["next.log_norm"], at)[place];
    const share = (logp) => Math.exp(logp / temperature - norm);
    const actual = at + 1 < this.steps ? this.data.ids[at + 1] : -1;
    const ids = row(this.arrays["next.ids"], at);
    const logp = row(this.arrays["next.log_p"], at);
    const found = Array.from(ids.slice(0, most), (id, i) => ({ text: this.data.vocabulary[id], share: share(logp[i]), isActual: id === actual }));
    if (actual >= 0 && !found.some((one) => one.isActual)) {
      const loss = this.values("loss")[at + 1];
      found[most - 1] = { text: this.data.tokens[at + 1], share: Number.isFinite(loss) ? share(-loss) : 0, isActual: true, isFar: true };
    }
    return found;
  }

  bytes(at) { return at < 0 ? this.data.bytes_before : this.values("memory.bytes")[at]; }

  /** Return how strongly the prediction after `at` depends on each symbol; null where it is not known.

   * By gradients; of a model that counts, by how much ln p changes when the symbol is left out. */
  back(at) {
    const influence = this.arrays.reach ?? this.arrays.left_out;
    return influence && this.places.has(at) ? row(influence, this.places.get(at)).map(Math.abs) : null;
  }

  /** Return whether there are gradients: without them, what leaving a symbol out changes stands in their place. */
  get hasGradient() { return Boolean(this.arrays.reach); }

  /** Return how strongly each later prediction depends on symbol `pin`; NaN where it is not known. */
  ahead(pin) {
    const influence = this.arrays.reach ?? this.arrays.left_out;
    if (!influence) return null;
    const found = new Float32Array(this.steps).fill(NaN);
    for (const [at, outcome] of this.places) if (at >= pin) found[at] = Math.abs(row(influence, outcome)[pin]);
    return found;
  }

  curve() { return this.values("reach.curve"); }

  /** Return the layers that hold a kind of value, by the last part of its name. */
  layersWith(name) { return this.data.layers.filter((layer) => this.arrays[`${layer.name}.${name}`]); }

  /** Return the attention weights from symbol `at`: of one head "LAYER.HEAD", or the mean of a layer's heads. */
  attention(at, head) {
    const layers = this.layersWith("weights");
    if (!layers.length) return null;
    const [asked, number] = head.includes(":") ? head.split(":") : [layers.at(-1).name, ""];
    const name = layers.some((layer) => layer.name === asked) ? asked : layers.at(-1).name;
    const packed = this.arrays[`${name}.weights`];
    const heads = packed.shape[0];
    if (number !== "" && Number(number) < heads) return row(packed, Number(number), at);
    const mean = new Float32Array(packed.shape[2]);
    for (let n = 0; n < heads; n++) row(packed, n, at).forEach((weight, i) => { mean[i] += weight / heads; });
    return mean;
  }
}
