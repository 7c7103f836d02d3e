// The controls, made of the table of a run: docs/run.schema.json, as the library in the page has it. A control shows what
// was set, else with what value the run goes; one that not every run has says what it belongs to.
import {h, words} from './format.js';

// What stands in front, by key; the rest is under "All options".
const FRONT = ['batch_size', 'sequence_length', 'image_size', 'precision', 'checkpointing', 'lora', 'quantize', 'optimizer',
  'loop', 'accumulation_steps', 'liger', 'compile', 'gpus', 'parallel', 'infer', 'new_tokens'];
// Of these every run has a value that has one at all: without it they are not shown.
const OF_SOME_RUNS = new Set(['sequence_length', 'image_size', 'new_tokens']);
// Whose values go by doubles: a slider. From these on, and whether 0 stands for "not".
const SLIDERS = {batch_size: [1, 512], sequence_length: [128, 131072], image_size: [64, 2048], lora: [4, 256, true],
  accumulation_steps: [1, 256], gpus: [1, 64], new_tokens: [16, 8192]};

function stops_of([least, most, can_be_off]) {
  const stops = can_be_off ? [0] : [];
  for (let value = least; value <= most; value *= 2) {
    stops.push(value);
    if (value * 1.5 <= most && Number.isInteger(value * 1.5) && value >= 4 && !can_be_off) stops.push(value * 1.5);
  }
  return stops;
}

export class Controls {
  /// `start`: what the page began with (schema, models, gpus); `changed(options)` is told of every change.
  constructor(start, changed) {
    this.start = start;
    this.changed = changed;
    this.options = {};
    this.fields = new Map();
    this.schema = start.schema.properties;
    this.key_of_flag = {};
    for (const [key, row] of Object.entries(this.schema)) {
      if (!row['x-flag']) continue;
      this.key_of_flag[row['x-flag']] = key;
      if (row['x-negative-flag']) this.key_of_flag[row['x-negative-flag']] = key;
    }
    this.build();
  }

  takes_value(flag) {
    const key = this.key_of_flag[flag];
    return key === undefined ? flag === '--megatron' || flag === '--deepspeed' : this.schema[key].type !== 'boolean';
  }

  build() {
    const front = document.getElementById('main-fields'), all = document.getElementById('all-fields');
    const models = this.start.models.models, gpus = this.start.gpus.gpus;
    document.body.append(
      h('datalist', {id: 'models'}, models.flatMap((each) => [each.name, ...(each.aliases ?? [])]).map((name) => h('option', {value: name}))),
      h('datalist', {id: 'gpus'}, gpus.map((each) => h('option', {value: each.name}, each.description))));
    front.append(this.field('model', {list: 'models', label: 'Model', hint: `name, hub id (${models.length} known), or a dropped config.json`}),
      this.field('gpu', {list: 'gpus', label: 'Card', hint: `${gpus.length} known; your own: --card under All options`}));
    const grid = h('div', {class: 'grid-fields'});
    for (const key of FRONT) grid.append(this.field(key));
    front.append(grid);
    const groups = new Map();
    for (const [key, row] of Object.entries(this.schema)) {
      if (!row['x-flag'] || this.fields.has(key)) continue;
      if (!groups.has(row['x-group'])) groups.set(row['x-group'], []);
      groups.get(row['x-group']).push(key);
    }
    for (const [name, keys] of groups) {
      all.append(h('fieldset', {}, h('legend', {}, name), keys.map((key) => this.field(key))));
    }
    for (const list of ['megatron', 'deepspeed']) {
      if (this.schema[list]) this.add_list(all, list);
    }
    document.getElementById('filter').addEventListener('input', (event) => this.find(event.target.value));
  }

  add_list(all, key) {
    this.schema[key] = {...this.schema[key], type: 'string', 'x-flag': `--${key}`, description: `name=value, … of ${key}: ${Object.keys(this.schema[key].properties).slice(0, 4).join(', ')}, …`};
    this.key_of_flag[`--${key}`] = key;
    all.append(h('fieldset', {}, h('legend', {}, `--${key}`), this.field(key)));
  }

  /// A labelled control for a row of the table.
  field(key, {list = null, label = null, hint = null} = {}) {
    const row = this.schema[key];
    const id = `field-${key}`;
    const field = {key, row, element: null, inputs: []};
    const set = (text) => this.set(key, text);
    const about = hint ?? row.description ?? '';
    const parts = [];
    if (row.type === 'boolean') {
      field.input = row['x-negative-flag']
        ? h('select', {id}, h('option', {value: 'default'}, 'as usual'), h('option', {value: 'yes'}, 'yes'), h('option', {value: 'no'}, 'no'))
        : h('input', {id, type: 'checkbox'});
      field.input.addEventListener('change', () => set(field.input.type === 'checkbox' ? (field.input.checked ? '' : null) : {yes: '', no: false, default: null}[field.input.value]));
      parts.push(field.input);
    } else if (row.enum) {
      field.input = h('select', {id}, row.enum.map((name) => h('option', {value: name}, name)));
      field.input.addEventListener('change', () => set(field.input.value));
      parts.push(field.input);
    } else {
      const whole = row.type === 'integer';
      if (row.examples && !list) {
        list = `list-${key}`;
        parts.push(h('datalist', {id: list}, row.examples.map((name) => h('option', {value: name}))));
      }
      field.input = h('input', {id, type: whole ? 'number' : 'text', list, inputmode: whole ? 'numeric' : null, min: whole ? row.minimum : null, spellcheck: 'false', autocapitalize: 'none', autocomplete: 'off'});
      // A list of names shows all of them only where nothing stands in the field yet.
      field.input.addEventListener(list ? 'change' : 'input', () => set(field.input.value.trim() === '' ? null : field.input.value.trim()));
      parts.push(field.input);
      if (SLIDERS[key]) {
        field.stops = stops_of(SLIDERS[key]);
        field.slider = h('input', {type: 'range', min: 0, max: field.stops.length - 1, step: 1, 'aria-label': `${words(key)}, slider`});
        field.slider.addEventListener('input', () => {
          const value = field.stops[field.slider.valueAsNumber];
          set(value === 0 ? null : String(value));
        });
        parts.push(field.slider);
      }
    }
    field.reset = h('button', {type: 'button', class: 'reset', 'aria-label': `${words(key)}: as usual again`, title: 'as usual again', onclick: () => set(null)}, '×');
    field.element = h('div', {class: `field ${row.type}${field.slider ? ' sliding' : ''}`, 'data-key': key},
      h('label', {for: id, title: `${row['x-flag']}: ${row.description ?? ''}`}, label ?? words(key)), field.reset, ...parts,
      h('span', {class: 'about', id: `${id}-about`}, about));
    field.input.setAttribute('aria-describedby', `${id}-about`);
    field.about = field.element.lastChild;
    field.hint = about;
    this.fields.set(key, field);
    return field.element;
  }

  /// null: not given; false: the flag that means no.
  set(key, text) {
    const row = this.schema[key];
    const options = {...this.options};
    // Other spellings of the same: --bf16 beside --precision.
    const same = ['precision', 'fp16', 'bf16'].includes(key) ? ['--precision', '--fp16', '--bf16'] : [row['x-flag'], row['x-negative-flag']];
    const there = Object.keys(options).find((flag) => same.includes(flag));
    const flag = text === false ? row['x-negative-flag'] : row['x-flag'];
    if (text !== null && there === flag) {
      options[flag] = text === false ? '' : text;  // in its place
    } else {
      for (const each of same) delete options[each];
      if (text !== null) options[flag] = text === false ? '' : text;
    }
    this.options = options;
    this.changed(options, key);
  }

  /// What was asked for, and the record of the run that came of it (null: there is none).
  show(options, run) {
    this.options = options;
    this.run = run ?? this.run ?? {};
    for (const field of this.fields.values()) this.show_field(field);
  }

  show_field({key, row, input, slider, stops, element, about, hint}) {
    const given = this.options[row['x-flag']];
    const is_no = this.options[row['x-negative-flag']] !== undefined;
    const is_given = given !== undefined || is_no;
    const ran = this.run[key];
    const value = given ?? (Array.isArray(ran) ? ran.join(',') : ran);
    element.classList.toggle('given', is_given);
    // A record holds what has a value; what it lacks is there to be asked for, or is of other runs.
    const unsaid = ran === undefined && !is_given && row['x-belongs-to'] !== undefined;
    element.classList.toggle('missing', unsaid && OF_SOME_RUNS.has(key));
    about.textContent = unsaid ? `${hint}; belongs to ${row['x-belongs-to']}` : hint;
    const focused = document.activeElement === input;
    if (input.type === 'checkbox') input.checked = given !== undefined || (ran === true);
    else if (input.tagName === 'SELECT') {
      if (row.type === 'boolean') input.value = is_no ? 'no' : given !== undefined ? 'yes' : 'default';
      else input.value = value ?? '';
    } else if (!focused || document.activeElement.value === '') {
      input.value = given ?? '';
      input.placeholder = given === undefined && ran !== undefined ? (Array.isArray(ran) ? ran.join(',') : ran) : '';
    }
    if (!slider) return;
    const number = Number(value ?? stops[0]);
    let nearest = 0;
    stops.forEach((stop, i) => { if (Math.abs(stop - number) < Math.abs(stops[nearest] - number)) nearest = i; });
    if (document.activeElement !== slider || stops[slider.valueAsNumber] !== number) slider.value = nearest;
    slider.setAttribute('aria-valuetext', `${value ?? 'off'} ${row['x-unit'] ?? ''}`.trim());
    if (document.activeElement === slider) input.value = given ?? '';
  }

  /// Marks the control that an error is about.
  blame(part) {
    for (const field of this.fields.values()) {
      const flags = [field.row['x-flag'], field.row['x-negative-flag']];
      const wrong = Boolean(part) && flags.includes(part);
      field.element.classList.toggle('wrong', wrong);
      field.input.setAttribute('aria-invalid', String(wrong));
    }
  }

  find(text) {
    const wanted = text.trim().toLowerCase();
    for (const {element, key, row} of this.fields.values()) {
      element.classList.toggle('filtered', wanted !== '' && !`${key} ${row['x-flag']} ${row.description}`.toLowerCase().includes(wanted));
    }
    for (const group of document.querySelectorAll('#all-fields fieldset')) {
      group.hidden = !group.querySelector('.field:not(.filtered)');
    }
  }
}
