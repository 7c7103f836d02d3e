// Files that are dropped on the page: a model's config.json, a recorded program, another tool's configuration.

const LARGEST = 64 * 2 ** 20;

async function text_of(file) {
  if (file.size > LARGEST) throw new Error(`${file.name}: ${Math.round(file.size / 2 ** 20)} MiB; at most 64 are read. Weights are not needed: drop the model's config.json`);
  const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const packed = head[0] === 0x1f && head[1] === 0x8b;
  const data = packed ? file.stream().pipeThrough(new DecompressionStream('gzip')) : file;
  const text = await new Response(data).text().catch(() => { throw new Error(`${file.name}: damaged, or not compressed by gzip`); });
  if (text.length > LARGEST) throw new Error(`${file.name}: unpacked it is larger than 64 MiB`);
  return text;
}

/// {kind: "model" | "config", file: {name, text}}. Throws an Error in words.
export async function read_dropped(file) {
  const text = await text_of(file);
  const name = file.name.replace(/\.gz$/, '').replace(/[^\w.-]/g, '_').slice(-80) || 'config.json';
  if (text.includes('\0')) throw new Error(`${file.name}: not a text; accepted: a config.json, a program, a configuration in JSON or TOML`);
  if (/\.toml$/i.test(name)) return {kind: 'config', file: {name, text}};
  if (/\.ya?ml$/i.test(name)) throw new Error(`${file.name}: the page reads JSON and TOML; for YAML: memcalc --config ${name}`);
  let json;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new Error(`${file.name}: ${error.message}`);
  }
  if (typeof json !== 'object' || json === null || Array.isArray(json)) throw new Error(`${file.name}: expected a JSON object`);
  const is_model = ['model_type', 'architectures', 'format', 'architecture', 'block', 'config', 'hidden_size', 'n_embd'].some((key) => key in json);
  const model_name = is_model && !/\.json$/i.test(name) ? `${name}.json` : name;
  return {kind: is_model ? 'model' : 'config', file: {name: model_name, text}};
}
