// Where the numbers come from: the file itself, or the server that the page was opened from.

const isInFile = () => document.getElementById("exhibit") !== null;

function inFile(id) {
  const block = document.getElementById(id);
  return block ? JSON.parse(block.textContent) : null;
}

async function ask(path, body, signal) {
  let answer;
  try {
    answer = await fetch(path, body && { method: "POST", body: JSON.stringify(body), signal, headers: { "Content-Type": "application/json" } });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error("gone");
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Error(said.detail ?? `HTTP ${answer.status}`);
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

  /** Return what a column is with knobs turned; in a file, with the first of them. */
  async variant(column, knobs, text) {
    if (this.live) return (await ask("api/reading", { column: column.id, knobs, text })).json();
    this.variants[column.id] ??= inFile(`variants-${column.id}`) ?? {};
    const [[knob, value]] = Object.entries(knobs);
    return this.variants[column.id][`${knob}=${value}`] ?? null;
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
