// Asks the library in its worker. Of questions of one kind that wait, only the newest is asked: a slider that moves does
// not queue up.

export class Engine {
  constructor(url = new URL('worker.js', import.meta.url)) {
    this.worker = new Worker(url, {type: 'module'});
    this.worker.onmessage = ({data}) => this.receive(data);
    this.worker.onerror = (event) => this.break(event.message || 'the worker could not be loaded');
    this.busy = null;
    this.waiting = [];
    this.next = 0;
    this.broken = null;
  }

  /// The answer as an object; null where a newer question of this kind came before it was asked.
  /// `run`: {options, file}; `more`: other members of the request.
  ask(kind, name, run, more = {}) {
    if (this.broken) return Promise.reject(new Error(this.broken));
    for (const each of this.waiting.filter((one) => one.kind === kind)) each.resolve(null);
    this.waiting = this.waiting.filter((one) => one.kind !== kind);
    return new Promise((resolve, reject) => {
      this.waiting.push({kind, message: message_of(name, run, more), resolve, reject});
      this.advance();
    });
  }

  /// Forgets what waits.
  clear() {
    for (const each of this.waiting) each.resolve(null);
    this.waiting = [];
  }

  advance() {
    if (this.busy || this.waiting.length === 0) return;
    this.busy = this.waiting.shift();
    this.busy.id = ++this.next;
    this.worker.postMessage({id: this.busy.id, ...this.busy.message});
  }

  receive({id, answer, failure, milliseconds}) {
    const asked = this.busy;
    if (!asked || asked.id !== id) return;
    this.busy = null;
    if (failure) {
      asked.reject(new Error(failure));
    } else {
      this.milliseconds = milliseconds;
      asked.resolve(JSON.parse(answer));
    }
    this.advance();
  }

  break(reason) {
    this.broken = reason;
    for (const each of [this.busy, ...this.waiting].filter(Boolean)) each.reject(new Error(reason));
    this.busy = null;
    this.waiting = [];
  }
}

let files = 0;
const paths = new WeakMap();

/// A dropped file has a folder of its own, so that no two are one path. A config.json without a name is called after it.
function path_of(file) {
  if (!paths.has(file)) paths.set(file, `/dropped/${++files}/dropped-model/${file.name}`);
  return paths.get(file);
}

function message_of(name, run, more) {
  if (!run) return {request: {ask: name, ...more}};
  const options = {...run.options};
  if (!run.file || options['--model'] !== run.file.name) return {request: {ask: name, options, ...more}};
  const path = path_of(run.file);
  options['--model'] = path;
  return {request: {ask: name, options, ...more}, file: {path, text: run.file.text}};
}

/// Texts of the library without the folders that dropped files have here.
export const without_folders = (text) => text.replaceAll(/(?:\/dropped\/\d+\/)?dropped-model\//g, '');
