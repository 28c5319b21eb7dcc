// Arrays as the library packs them, and how numbers are written.

const KINDS = { f4: Float32Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };
const known = new WeakMap();

/** Return a packed array as { shape, values }; each is unpacked once. */
export function unpack(packed) {
  if (!packed) return null;
  let found = known.get(packed);
  if (!found) {
    const bytes = Uint8Array.from(atob(packed.data), (c) => c.charCodeAt(0));
    found = { shape: packed.shape, values: new KINDS[packed.dtype](bytes.buffer) };
    known.set(packed, found);
  }
  return found;
}

/** Return row `index` of the first axis. */
export function row(packed, ...index) {
  const { shape, values } = unpack(packed);
  let start = 0;
  let size = values.length;
  index.forEach((at, axis) => {
    size /= shape[axis];
    start += at * size;
  });
  return values.subarray(start, start + size);
}

export function grouped(number, lang) {
  return Math.round(number).toLocaleString(lang === "zh" ? "zh-CN" : "en-US");
}

export function percent(share) {
  if (share > 0.995 && share < 1) return "> 99 %";
  if (share > 0 && share < 0.005) return "< 1 %";
  return `${Math.round(100 * share)} %`;
}

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/** Return 10 to a whole power, as it is printed. */
export function power(exponent) {
  return exponent === 0 ? "1" : `10${[...String(exponent)].map((c) => RAISED[c]).join("")}`;
}

/** Return a number in scientific notation: 3.2 · 10⁻⁷. */
export function scientific(number) {
  if (!(number > 0)) return "0";
  const exponent = Math.floor(Math.log10(number));
  if (exponent >= -2 && exponent <= 3) return number.toPrecision(3);
  return `${(number / 10 ** exponent).toFixed(1)} · ${power(exponent)}`;
}
