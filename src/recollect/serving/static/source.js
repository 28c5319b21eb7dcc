// Where the numbers come from: the file itself, or the server that the page was opened from.

const isInFile = () => document.getElementById("exhibit") !== null;

function inFile(id) {
  const block = document.getElementById(id);
  return block ? JSON.parse(block.textContent) : null;
}

/** An error of the server, in both languages. */
export class Refused extends Error {
  constructor({ detail, zh, error }, status) {
    const en = typeof detail === "string" ? detail : error?.message ?? `HTTP ${status}`;
    super(en);
    this.both = { en, zh: zh ?? `出错：${en}` };
  }
}

async function ask(path, body, signal) {
  let answer;
  try {
    answer = await fetch(path, body && { method: "POST", body: JSON.stringify(body), signal, headers: { "Content-Type": "application/json" } });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error("gone");
  }
  if (!answer.ok) {
    throw new Refused(await answer.json().catch(() => ({})), answer.status);
  }
  return answer;
}

/** The numbers of the page. `live` is whether a server computes what is asked for. */
export class Source {
  constructor() {
    this.live = !isInFile();
    this.variants = {};
  }

  async exhibit() {
    return this.live ? (await ask("api/exhibit")).json() : inFile("exhibit");
  }

  /** Return another text read by every model; live only. */
  async read(text) {
    return (await ask("api/exhibit", { text })).json();
  }

  /** Return whether a column's knobs can be turned: a file of a long text or a large model has none of their readings. */
  turns(column) { return this.live || Object.keys(this.inFile(column)).length > 0; }

  inFile(column) { return (this.variants[column.id] ??= inFile(`variants-${column.id}`) ?? {}); }

  /** Return what a column is with knobs turned; in a file, with the first of them, null for what it does not have. */
  async variant(column, knobs, text) {
    if (this.live) return (await ask("api/reading", { column: column.id, knobs, text })).json();
    const [[knob, value]] = Object.entries(knobs);
    return this.inFile(column)[`${knob}=${value}`] ?? null;
  }

  /** Yield the chunks of a continuation as they are generated; live only. */
  async *write(column, prompt, temperature, seed, signal) {
    const answer = await ask("api/write", { column, prompt, temperature, seed }, signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (held + value).split("\n");
      held = lines.pop();
      for (const line of lines) {
        const said = JSON.parse(line);
        if (said.error) throw new Error(said.error);
        yield said.chunk;
      }
    }
  }

  async training() {
    return (await ask("api/training")).json();
  }
}
