// "Copy as": the run as a command line, as Python, as the settings of other programs.
import {without_folders} from './engine.js';
import {h} from './format.js';
import {options_of} from './state.js';

function python_value(row, text) {
  if (row.type === 'boolean') return 'True';
  if (row.type === 'integer' || row.type === 'number') return /^[\d.e+-]+$/.test(text) ? text : JSON.stringify(text);
  if (row.type === 'array') return `[${text.split(',').map((each) => (row.items?.type === 'integer' ? each : JSON.stringify(each))).join(', ')}]`;
  return JSON.stringify(text);
}

/// memcalc.estimate(…) of the command line that asks for this run.
export function python_of(command, controls) {
  const options = options_of(command, (flag) => controls.takes_value(flag));
  const model = options['--model'];
  delete options['--model'];
  const keywords = Object.entries(options).map(([flag, text]) => {
    const key = controls.key_of_flag[flag] ?? flag.slice(2).replaceAll('-', '_');
    const row = controls.schema[key] ?? {type: 'string'};
    return `${key}=${flag === row['x-negative-flag'] ? 'False' : python_value(row, text)}`;
  });
  return `import memcalc\n\nreport = memcalc.estimate(${[JSON.stringify(model ?? ''), ...keywords].join(', ')})\nprint(report)\n`;
}

const WAYS = [['command line', 'command'], ['Python', 'python'], ['TrainingArguments', 'trainer'], ['axolotl', 'axolotl'], ['torchrun', 'torchrun'], ['DeepSpeed', 'deepspeed']];

export class Copy {
  constructor(place, controls, engine) {
    this.controls = controls;
    this.engine = engine;
    this.way = 'command';
    this.text = h('pre', {tabindex: '0', id: 'copy-text'}, '');
    this.beside = h('ul', {class: 'hint'});
    this.done = h('span', {class: 'hint', role: 'status'});
    this.tabs = WAYS.map(([name, way]) => h('button', {type: 'button', role: 'tab', 'aria-selected': String(way === 'command'), 'aria-controls': 'copy-text', 'data-way': way, onclick: () => this.choose(way)}, name));
    place.append(h('div', {class: 'tabs', role: 'tablist', 'aria-label': 'Copy as'}, this.tabs), this.text, this.beside,
      h('button', {type: 'button', id: 'copy-button', onclick: () => this.copy()}, 'Copy'), ' ', this.done);
  }

  choose(way) {
    this.way = way;
    for (const tab of this.tabs) tab.setAttribute('aria-selected', String(tab.dataset.way === way));
    this.write();
  }

  show(run, command) {
    this.run = run;
    this.command = without_folders(command);
    this.write();
  }

  async write() {
    this.done.textContent = '';
    this.beside.replaceChildren();
    if (this.way === 'command') this.text.textContent = this.command;
    else if (this.way === 'python') this.text.textContent = python_of(this.command, this.controls);
    else {
      const way = this.way;
      const answer = await this.engine.ask('settings', 'settings', this.run, {as: way}).catch((error) => ({error: {message: error.message}}));
      if (answer === null || this.way !== way) return;
      this.text.textContent = answer.error ? `# ${without_folders(answer.error.message)}` : answer.settings;
      this.beside.replaceChildren(...(answer.beside ?? []).map((each) => h('li', {}, each)));
    }
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.text.textContent);
      this.done.textContent = 'copied';
    } catch {
      getSelection().selectAllChildren(this.text);
      this.done.textContent = 'selected: copy it with the keyboard';
    }
  }
}
