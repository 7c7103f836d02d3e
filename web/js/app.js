// The page: what is asked stands in `runs`, the address and the controls show it, the library answers it.
import {Controls} from './controls.js';
import {Copy} from './copy.js';
import {Engine, without_folders} from './engine.js';
import {read_dropped} from './files.js';
import {h} from './format.js';
import {show_answers} from './results.js';
import {Searches} from './search.js';
import {hash_of, packed_file, runs_of} from './state.js';

const $ = (id) => document.getElementById(id);
const SEARCH_AFTER = 500;  // milliseconds without a change
const ADDRESS_AFTER = 150;

const page = {runs: [], active: 0, answers: [], start: null, engine: new Engine(), first: true};

function say(text, part = '') {
  $('message').hidden = text === '';
  $('message').replaceChildren(...(text ? message_parts(text) : []));
  $('answer').classList.toggle('stale', text !== '');
  if (text) {  // on a phone, where the message is out of sight and the last verdict is of another run
    $('mini').className = 'refused';
    $('mini').textContent = text;
  }
  page.controls?.blame(part);
}

/// "accepted: --seq of 1024 or less": that much.
function limit_in(text) {
  const [, flag, most] = text.match(/accepted: (--[\w-]+) of (\d+) or less/) ?? [];
  const key = Object.keys(page.controls?.schema ?? {}).find((each) => page.controls.schema[each]['x-flag'] === flag);
  return key === undefined ? null : h('button', {type: 'button', onclick: () => page.controls.set(key, most)}, `${flag} ${most}`);
}

/// What the library proposes, names or a limit, is there to choose.
function message_parts(text) {
  const about_model = /unknown model/.test(text), about_card = /unknown GPU/.test(text);
  if (!about_model && !about_card) return [text, limit_in(text) ?? ''];
  const known = new Set(about_model ? page.start.models.models.flatMap((each) => [each.name, ...(each.aliases ?? [])]) : page.start.gpus.gpus.map((each) => each.name));
  const said = new Set(text.match(/[\w./-]+\w/g));
  const meant = [...said].filter((name) => known.has(name)).slice(0, 5);
  return [text, ...meant.map((name) => h('button', {type: 'button', onclick: () => page.controls.set(about_model ? 'model' : 'gpu', name)}, name)),
    about_model ? h('span', {class: 'hint'}, (text.endsWith('?') ? '' : '.') + ' Any other model of transformers: drop its config.json.') : ''];
}

let searching = null, addressing = null;

function write_address() {
  clearTimeout(addressing);
  addressing = setTimeout(() => {
    const hash = hash_of(page.runs);
    if (hash !== location.hash) history.replaceState(null, '', hash);
  }, ADDRESS_AFTER);
}

async function ask(i) {
  const run = page.runs[i];
  const answer = await page.engine.ask(`estimate ${i}`, 'estimate', run, {explain: true})
    .catch((error) => ({error: {message: `The library stopped: ${error.message}`, part: ''}}));
  if (answer === null || page.runs[i] !== run) return;
  if (answer.error) {
    const which = page.runs.length > 1 ? `Run ${'AB'[i]}: ` : '';
    const bug = answer.error.ours ? ' This is a fault of memcalc; please report it with the link of this page.' : '';
    page.controls.show(page.runs[page.active].options, null);
    page.searches.forget();
    say(which + without_folders(answer.error.message) + bug, answer.error.part);
    return;
  }
  page.answers[i] = answer;
  show();
}

function show() {
  if (page.answers.filter(Boolean).length < page.runs.length) return;
  say('');
  const {options, file} = page.runs[page.active];
  const answer = page.answers[page.active];
  page.controls.show(options, answer.report.run);
  show_answers(page.answers, page.active);
  page.copy.show(page.runs[page.active], answer.command);
  document.title = `${answer.report.verdict === 'fits' ? 'fits' : answer.report.verdict === 'too-close' ? 'too close' : 'does not fit'}: ${without_folders(answer.report.model.name)} on ${answer.report.device.name} · memcalc`;
  $('about').replaceChildren(
    `memcalc ${page.start.version} · ${answer.report.profile} · answered in ${page.engine.milliseconds.toFixed(0)} ms by your own processor; nothing leaves this page. `,
    file && !file.packed ? h('strong', {}, 'The dropped file is too long for a link: who opens it has to drop the file, too.') : '');
  if (page.first) {
    page.first = false;
    performance.mark('memcalc-first-answer');
    document.body.dataset.first = Math.round(performance.now());
  }
  document.body.dataset.answers = Number(document.body.dataset.answers ?? 0) + 1;
  clearTimeout(searching);
  searching = setTimeout(() => {
    const answered = page.answers[page.active];
    if (answered) page.searches.begin(page.runs[page.active], answered);
  }, SEARCH_AFTER);
}

function update(options) {
  page.runs[page.active] = {...page.runs[page.active], options};
  page.controls.show(options, null);
  write_address();
  ask(page.active);
}

function show_tabs() {
  const two = page.runs.length === 2;
  $('compare').setAttribute('aria-pressed', String(two));
  $('compare').textContent = two ? 'Back to one run' : 'Compare two runs';
  $('tabs').hidden = !two;
  $('tabs').replaceChildren(...(two ? ['A', 'B'] : []).map((name, i) => h('button', {
    type: 'button', role: 'tab', 'aria-selected': String(i === page.active), 'aria-controls': 'main-fields',
    onclick: () => { page.active = i; show_tabs(); show(); }}, `Run ${name}`)));
}

function set_runs(runs) {
  page.runs = runs;
  page.active = runs.length - 1;
  page.answers = [];
  show_tabs();
  page.controls.show(runs[page.active].options, null);
  runs.forEach((_, i) => ask(i));
}

function compare() {
  if (page.runs.length === 1) {
    page.runs.push({...page.runs[0], options: {...page.runs[0].options}});
    page.answers[1] = page.answers[0];
    page.active = 1;
  } else {
    page.runs = [page.runs[page.active]];
    page.answers = [page.answers[page.active]];
    page.active = 0;
  }
  show_tabs();
  write_address();
  if (page.answers.every(Boolean)) show();
  else page.runs.forEach((_, i) => ask(i));
}

async function take_file(dropped) {
  try {
    const {kind, file} = await read_dropped(dropped);
    if (kind === 'model') {
      file.packed = await packed_file(file);
      page.runs[page.active] = {...page.runs[page.active], file};
      update({...page.runs[page.active].options, '--model': file.name});
      return;
    }
    const model_now = page.runs[page.active].options['--model'] ?? '';
    const answer = await page.engine.ask('config', 'config', null, {name: file.name, text: file.text, model: model_now});
    if (answer === null) return;
    if (answer.error) throw new Error(without_folders(answer.error.message));
    const {'--model': model = page.runs[page.active].options['--model'], ...options} = answer.options;
    const gpu = page.runs[page.active].options['--gpu'];
    update({'--model': model, ...(gpu ? {'--gpu': gpu} : {}), ...options});
  } catch (error) {
    say(error.message);
  }
}

function listen() {
  $('controls').addEventListener('submit', (event) => event.preventDefault());
  $('compare').addEventListener('click', compare);
  $('share').addEventListener('click', async () => {
    history.replaceState(null, '', hash_of(page.runs));
    const done = await navigator.clipboard.writeText(location.href).then(() => 'Copied', () => 'It is in the address bar');
    $('share').textContent = done;
    setTimeout(() => { $('share').textContent = 'Copy link'; }, 1500);
  });
  const theme = $('theme');
  const themed = (name) => { if (name) document.documentElement.dataset.theme = name; };
  try { themed(localStorage.getItem('memcalc-theme')); } catch { /* no storage: the system's */ }
  theme.addEventListener('click', () => {
    const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    themed(dark ? 'light' : 'dark');
    try { localStorage.setItem('memcalc-theme', document.documentElement.dataset.theme); } catch { /* as above */ }
  });
  $('mini').addEventListener('click', (event) => {
    event.preventDefault();  // the address is the state
    $('answer').scrollIntoView();
  });
  document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    $('answer').focus();
  });
  const drop = $('drop'), input = $('file');
  drop.addEventListener('click', () => input.click());
  drop.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); input.click(); }
  });
  input.addEventListener('change', () => { if (input.files[0]) take_file(input.files[0]); input.value = ''; });
  input.addEventListener('click', (event) => event.stopPropagation());
  document.addEventListener('dragover', (event) => { event.preventDefault(); drop.classList.add('over'); });
  document.addEventListener('dragleave', () => drop.classList.remove('over'));
  document.addEventListener('drop', (event) => {
    event.preventDefault();
    drop.classList.remove('over');
    if (event.dataTransfer.files[0]) take_file(event.dataTransfer.files[0]);
  });
  addEventListener('hashchange', () => read_address());
  let width = innerWidth;
  addEventListener('resize', () => { if (innerWidth !== width) { width = innerWidth; if (page.answers.every(Boolean) && page.answers.length) show(); } });
}

async function read_address() {
  try {
    set_runs(await runs_of(location.hash));
  } catch (error) {
    say(`The link cannot be read: ${error.message}`);
  }
}

async function begin() {
  listen();
  try {
    page.start = await page.engine.ask('start', 'start', null);
  } catch (error) {
    say(`The page is not complete: ${error.message}`);
    return;
  }
  page.controls = new Controls(page.start, update);
  page.copy = new Copy($('copy'), page.controls, page.engine);
  page.searches = new Searches(page.start, page.controls, update);
  await read_address();
}

begin();
