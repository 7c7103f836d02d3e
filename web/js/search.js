// What takes many estimates, in a worker of its own: the ladder, and the table of cards and techniques.
import {Engine, without_folders} from './engine.js';
import {bytes, count, h, seconds, table} from './format.js';
import {options_of} from './state.js';

// What people try first, as options beside the run's own; null takes one away.
const TECHNIQUES = [
  ['as asked', {}],
  ['checkpointing', {'--checkpointing': 'full'}],
  ['8-bit Adam', {'--optimizer': 'adamw-8bit'}],
  ['LoRA 16', {'--lora': '16', '--quantize': null}],
  ['QLoRA 16', {'--lora': '16', '--quantize': 'nf4'}],
  ['QLoRA, checkpointing, Liger', {'--lora': '16', '--quantize': 'nf4', '--checkpointing': 'full', '--liger': ''}],
];
const $ = (id) => document.getElementById(id);
const VERDICTS = {fits: 'fits', 'too-close': 'too close', 'does-not-fit': 'no'};

function with_options(options, changes) {
  const changed = {...options};
  for (const [flag, text] of Object.entries(changes)) {
    if (text === null) delete changed[flag];
    else changed[flag] = text;
  }
  return changed;
}

export class Searches {
  constructor(start, controls, apply) {
    this.start = start;
    this.controls = controls;
    this.apply = apply;  // (options): takes them over
    this.engine = null;
    this.asked = '';
  }

  /// Begins again, unless it is about the same run.
  begin(run, {report, common_cards}) {
    const asked = JSON.stringify(run.options) + (run.file?.name ?? '');
    if (asked === this.asked) return;
    this.asked = asked;
    this.engine ??= new Engine();
    this.engine.clear();
    this.find_ladder(asked, run, report);
    this.find_cards(asked, run, report, common_cards);
  }

  forget() {
    this.asked = '';
    this.engine?.clear();
    $('ladder-answer').textContent = '';
    $('ladder').replaceChildren();
    $('cards').replaceChildren();
  }

  async find_ladder(asked, run, report) {
    $('ladder').setAttribute('aria-busy', 'true');
    const answer = await this.engine.ask('ladder', 'ladder', run).catch((error) => ({error: {message: error.message}}));
    if (this.asked !== asked || answer === null) return;
    $('ladder').removeAttribute('aria-busy');
    if (answer.error) {
      $('ladder-answer').textContent = without_folders(answer.error.message);
      $('ladder').replaceChildren();
      return;
    }
    const {ladder} = answer;
    $('ladder-answer').textContent = without_folders(ladder.answer);
    const take = (command) => {
      const options = options_of(command, (flag) => this.controls.takes_value(flag));
      if (run.file) options['--model'] = run.file.name;
      this.apply(options);
    };
    $('ladder').replaceChildren(table(['technique', {text: 'needs', class: 'number'}, {text: 'room', class: 'number'}, 'fits', {text: 'a step', class: 'number'}, 'what it costs', {text: ''}],
      ladder.rows.map((row, i) => ({class: `${row.verdict} ${row.kept ? '' : 'passed-over'}`, cells: [
        row.technique, {text: bytes(row.needed_bytes), class: 'number'}, {text: row.headroom_bytes < 0 ? `−${bytes(-row.headroom_bytes)}` : bytes(row.headroom_bytes), class: 'number'},
        {text: VERDICTS[row.verdict], class: `mark ${row.verdict}`}, {text: seconds(row.step_seconds), class: 'number'}, row.price ?? '',
        i === 0 ? '' : h('button', {type: 'button', class: 'apply', 'aria-label': `apply ${row.technique}`, title: row.command, onclick: () => take(row.command)}, 'apply')]})), 'Techniques, each added to those that helped before it'));
    if (ladder.rows.length <= 1 && report.verdict === 'fits') $('ladder-answer').textContent = 'It fits as asked.';
  }

  async find_cards(asked, run, report, common_cards) {
    const trains = !report.run.infer;
    const techniques = trains ? TECHNIQUES : TECHNIQUES.slice(0, 1);
    const names = [...new Set([report.device.name, ...common_cards, 'rtx-3090', 'rtx-5090'])];
    const cards = names.map((name) => this.start.gpus.gpus.find((gpu) => gpu.name === name)).filter(Boolean).sort((a, b) => a.memory_bytes - b.memory_bytes);
    const bare = with_options(run.options, {'--bs': null, '--card': null, '--memory': null});
    const cells = new Map();
    const rows = cards.map((card) => ({class: card.name === report.device.name ? 'asked-row' : null, cells: [
      h('span', {}, card.name, h('small', {}, ` ${bytes(card.memory_bytes)}${this.start.prices[card.name] ? `, $${this.start.prices[card.name].toFixed(2)}/h` : ''}`)),
      ...techniques.map(([name]) => {
        const cell = h('span', {class: 'cell waiting', 'aria-label': `${name} on ${card.name}`}, '…');
        cells.set(`${card.name} ${name}`, cell);
        return cell;
      })]}));
    $('cards').replaceChildren(table(['card', ...techniques.map(([name]) => ({text: name}))], rows, 'Largest batch by card and technique'),
      h('p', {class: 'hint'}, Object.keys(this.start.prices).length ? `Prices: ${this.start.price_note}. A million tokens at the largest batch, where a price and the time are known.` : ''));
    for (const [name, changes] of techniques) {
      for (const card of cards) {
        const options = with_options(with_options(bare, changes), {'--gpu': card.name});
        const place = cells.get(`${card.name} ${name}`);
        const found = await this.engine.ask(`cell ${card.name} ${name}`, 'largest', {...run, options}).catch((error) => ({error: {message: error.message}}));
        if (this.asked !== asked || found === null) return;
        this.show_cell(place, found, {name, card, report, options});
      }
    }
  }

  show_cell(place, found, {name, card, report, options}) {
    place.classList.remove('waiting');
    if (found.error) {
      place.textContent = '–';
      place.title = without_folders(found.error.message);
      place.setAttribute('aria-label', `${name} on ${card.name}: ${place.title}`);
      return;
    }
    const fits = found.largest >= report.run.batch_size;
    const price = this.start.prices[card.name], rate = found.tokens_per_second;
    const dollars = price && rate ? price / 3600 / rate * 1e6 * report.run.gpus : null;
    const text = found.largest === 0 ? 'no' : `${fits ? '✓' : '✗'} ${count(found.largest)}${found.at_limit ? '+' : ''}`;
    const about = `${name} on ${card.name}: ${found.largest === 0 ? 'not even a batch of 1 fits' : `largest batch ${count(found.largest)}`}`;
    const button = found.largest === 0 ? h('span', {title: about}, text) : h('button', {type: 'button', class: 'take', 'aria-label': `${about}; take it over`, title: `${about}. Take it over`, onclick: () => this.apply({...options, '--bs': String(fits ? report.run.batch_size : found.largest)})}, text);
    place.className = `cell ${found.largest === 0 ? 'does-not-fit' : fits ? 'fits' : 'smaller'}`;
    place.replaceChildren(button, dollars ? h('small', {}, `$${dollars < 0.1 ? dollars.toFixed(3) : dollars.toFixed(2)}/M`) : '');
  }
}
