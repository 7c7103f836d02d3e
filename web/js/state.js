// What is asked, and its form in the address: #model=gpt2&gpu=rtx-4090&bs=4&padding, the options as they are typed on the
// command line. A second run stands behind "&vs&". A dropped file is part of it, compressed.

export const START = {'--model': 'llama-3.1-8b', '--gpu': 'rtx-4090', '--bs': '1', '--seq': '2048', '--bf16': '', '--lora': '16'};
const LONGEST_FILE = 12000;  // characters of a link that browsers and chats still take

const base64url = (data) => btoa(String.fromCharCode(...data)).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
const of_base64url = (text) => Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));

async function through(data, stream) {
  return new Uint8Array(await new Response(new Blob([data]).stream().pipeThrough(stream)).arrayBuffer());
}

/// {name, text} as "name~compressed"; null where it is too long for a link.
export async function packed_file(file) {
  const packed = base64url(await through(new TextEncoder().encode(file.text), new CompressionStream('deflate-raw')));
  return packed.length > LONGEST_FILE ? null : `${file.name}~${packed}`;
}

async function file_of(text) {
  const at = text.lastIndexOf('~');
  if (at < 1) throw new Error('the file in the link is damaged');
  const data = await through(of_base64url(text.slice(at + 1)), new DecompressionStream('deflate-raw'));
  return {name: text.slice(0, at).replace(/[^\w.-]/g, '_').slice(-80), text: new TextDecoder().decode(data), packed: text};
}

const encoded = (text) => encodeURIComponent(text).replaceAll('%2F', '/').replaceAll('%2C', ',').replaceAll('%3A', ':');

function hash_of_run(run) {
  const parts = Object.entries(run.options).map(([flag, text]) =>
    text === '' ? flag.slice(2) : `${flag.slice(2)}=${encoded(text)}`);
  if (run.file?.packed) parts.push(`file=${encodeURIComponent(run.file.packed)}`);
  return parts.join('&');
}

export const hash_of = (runs) => '#' + runs.map(hash_of_run).join('&vs&');

async function run_of(text) {
  const run = {options: {}, file: null};
  for (const part of text.split('&').filter(Boolean)) {
    const at = part.indexOf('=');
    const name = decodeURIComponent(at < 0 ? part : part.slice(0, at));
    const value = at < 0 ? '' : decodeURIComponent(part.slice(at + 1));
    if (name === 'file') run.file = await file_of(value);
    else if (/^[a-z0-9-]+$/.test(name)) run.options[`--${name}`] = value;
  }
  return run;
}

/// The runs of an address; the first one where it names none.
export async function runs_of(hash) {
  const texts = hash.replace(/^#/, '').split('&vs&').filter(Boolean).slice(0, 2);
  if (texts.length === 0) return [{options: {...START}, file: null}];
  return Promise.all(texts.map(run_of));
}

/// The words of a command line as a shell reads them.
export function shell_words(line) {
  const words = [];
  for (const [, quoted, double, plain] of line.matchAll(/'((?:[^']|'\\'')*)'|"([^"]*)"|(\S+)/g)) {
    words.push(quoted !== undefined ? quoted.replaceAll("'\\''", "'") : double ?? plain);
  }
  return words;
}

/// The options of "memcalc --model gpt2 --bs 4". `takes_value`: of a flag.
export function options_of(line, takes_value) {
  const words = shell_words(line);
  const options = {};
  for (let i = words[0] === 'memcalc' ? 1 : 0; i < words.length; ++i) {
    const [flag, value] = words[i].startsWith('--') && words[i].includes('=') ? [words[i].slice(0, words[i].indexOf('=')), words[i].slice(words[i].indexOf('=') + 1)] : [words[i]];
    if (!flag.startsWith('--')) continue;
    const next = words[i + 1];
    if (value !== undefined) options[flag] = value;
    else if (takes_value(flag) && next !== undefined && !next.startsWith('--')) options[flag] = words[++i];
    else options[flag] = '';
  }
  return options;
}
