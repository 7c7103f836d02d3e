// The library behind the page: it loads the module and the specs, and answers a request at a time.
import create from './memcalc.mjs';

async function unpacked(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  const packed = await response.arrayBuffer();
  const magic = new Uint8Array(packed, 0, 2);
  if (magic[0] !== 0x1f || magic[1] !== 0x8b) return new Response(packed);  // a server has unpacked it
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip')));
}

const folders = new Set();
function write(module, path, text) {
  const folder = path.slice(0, path.lastIndexOf('/'));
  if (!folders.has(folder)) {
    module.FS.mkdirTree(folder);
    folders.add(folder);
  }
  module.FS.writeFile(path, text);
}

async function load() {
  const [binary, specs] = await Promise.all([
    unpacked('../memcalc.wasm.bin').then((response) => response.arrayBuffer()),
    unpacked('../specs.bin').then((response) => response.json()),
  ]);
  const module = await create({wasmBinary: binary});
  for (const [path, text] of Object.entries(specs)) write(module, `/specs/${path}`, text);
  return module;
}

const loading = load();
const written = new Set();

async function answer_to({request, file}) {
  const module = await loading;
  if (file && !written.has(file.path)) {
    write(module, file.path, file.text);
    written.add(file.path);
  }
  const ask = () => module.ccall('memcalc_answer', 'string', ['string'], [JSON.stringify(request)]);
  let answer = ask();
  // Programs are large, and each is needed for its model alone: it is fetched then.
  const missing = answer.startsWith('{"error"') && answer.match(/([\w.-]+\.json\.gz): no such file/);
  if (missing && !written.has(missing[1])) {
    written.add(missing[1]);
    write(module, `/specs/programs/${missing[1]}`, await (await unpacked(`../programs/${missing[1].replace(/\.gz$/, '.bin')}`)).text());
    answer = ask();
  }
  return answer;
}

onmessage = async ({data}) => {
  try {
    const begin = performance.now();
    const answer = await answer_to(data);
    postMessage({id: data.id, answer, milliseconds: performance.now() - begin});
  } catch (error) {
    postMessage({id: data.id, failure: String(error?.message ?? error)});
  }
};
