// The answer of one run, or of two side by side.
import {draw_curve, color_of, top_of} from './curve.js';
import {without_folders} from './engine.js';
import {bytes, count, h, seconds, table, three, words} from './format.js';

const VERDICTS = {fits: 'Fits', 'too-close': 'Too close to call', 'does-not-fit': 'Does not fit'};
const $ = (id) => document.getElementById(id);

/// How sure it is, in a sentence.
export function certainty_text(report, certainty) {
  const card = report.device.validated ? `${report.device.name} was measured.` : `${report.device.name} itself was not measured: its context is assumed.`;
  if (!certainty?.runs) return `Runs of this kind were not measured. ${card}`;
  const exact = certainty.share === 0 ? 'exact to the byte' : `within ${three(certainty.share * 100)} %`;
  return `Of ${count(certainty.runs)} measured runs of this kind (${certainty.kind}), 9 of 10 are ${exact} in reserved memory. ${card}`;
}

const usable_of = (report) => report.device.memory_bytes - (report.device.margin_bytes ?? 0);

function verdict_card({report, certainty, milliseconds, command}, title) {
  const usable = usable_of(report), room = usable - report.needed_bytes;
  const error = report.needed_error_bytes ? ` ± ${bytes(report.needed_error_bytes)}` : '';
  const share = Math.min(1, report.needed_bytes / usable);
  const time = report.time;
  const facts = [
    ['needed', `${bytes(report.needed_bytes)}${error}`],
    ['allocated at the peak', bytes(report.memory.peak_allocated_bytes)],
    ['reserved by PyTorch', bytes(report.memory.peak_reserved_bytes)],
    ['parameters', `${count(report.params.total)}${report.params.trainable !== report.params.total ? `, ${count(report.params.trainable)} trained` : ''}`],
    time ? [report.run.infer ? 'a call' : 'a step', `${seconds(time.step_seconds)}${time.tokens_per_second ? `, ${count(time.tokens_per_second)} tokens/s` : `, ${three(time.samples_per_second)} samples/s`}`] : null,
    report.concurrent_sequences ? ['largest batch', count(report.concurrent_sequences)] : null,
    report.host_memory?.total_bytes > 0 ? ['of the host', bytes(report.host_memory.total_bytes)] : null,
  ].filter(Boolean);
  return h('article', {class: `verdict ${report.verdict}`, 'data-needed': report.needed_bytes, 'data-verdict': report.verdict},
    title ? h('p', {class: 'run-title'}, title) : null,
    h('p', {class: 'headline'}, h('strong', {}, VERDICTS[report.verdict]), ` ${without_folders(report.model.name)} on ${report.device.name}`),
    h('p', {class: 'room'}, room >= 0 ? `${bytes(room)} of room` : `${bytes(-room)} too much`, ` on ${bytes(usable)}${report.run.gpus > 1 ? ` of each of ${report.run.gpus} cards` : ''}`),
    h('div', {class: 'gauge', role: 'img', 'aria-label': `${bytes(report.needed_bytes)} of ${bytes(usable)}`}, h('div', {style: `width:${(share * 100).toFixed(2)}%`})),
    h('dl', {}, facts.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value)))),
    h('p', {class: 'certainty'}, certainty_text(report, certainty)));
}

/// [category, bytes] of all that the card holds at the peak: tensors, what PyTorch reserves beside them, what lies beside PyTorch.
export function shares_of(report) {
  const {memory} = report;
  const shares = Object.entries(memory.categories).filter(([, value]) => value > 0);
  const beside = memory.peak_reserved_bytes - memory.peak_allocated_bytes;
  if (beside > 0) shares.push(['reserved_not_allocated', beside]);
  const outside = report.needed_bytes - memory.peak_reserved_bytes;
  if (outside > 0) shares.push(['beside_pytorch', outside]);
  return shares;
}

const NAMES = {reserved_not_allocated: 'reserved, not allocated', beside_pytorch: 'beside PyTorch (context, kernels, NCCL, managed)'};
const name_of = (category) => NAMES[category] ?? words(category);

function bar(report, scale, title) {
  const usable = usable_of(report);
  const shares = shares_of(report);
  const room = usable - report.needed_bytes;
  const parts = shares.map(([name, value]) => h('span', {class: 'part', style: `width:${value / scale * 100}%;background:${color_of(name)}`, title: `${name_of(name)}: ${bytes(value)}`}));
  return h('div', {class: 'bar-row'}, title ? h('p', {class: 'run-title'}, title) : null,
    h('div', {class: 'bar', role: 'img', 'aria-label': shares.map(([name, value]) => `${name_of(name)} ${bytes(value)}`).join(', ')}, parts,
      h('span', {class: 'card-line', style: `left:${usable / scale * 100}%`, title: `${report.device.name}: ${bytes(usable)}`})),
    h('ul', {class: 'legend'}, shares.map(([name, value]) => h('li', {}, h('i', {class: 'swatch', style: `background:${color_of(name)}`}), h('span', {}, name_of(name)), h('b', {}, bytes(value)))),
      room > 0 ? h('li', {}, h('i', {class: 'swatch free'}), h('span', {}, 'room'), h('b', {}, bytes(room))) : null));
}

function show_curve(place, answer, top, title) {
  const {report, curve} = answer;
  if (!curve) {
    place.replaceChildren(h('p', {class: 'hint'}, report.run.infer ? 'Generation has no training step to draw.' : 'No single step stands for this run: its batches differ in length.'));
    return;
  }
  const box = h('div', {class: 'curve-box'});
  place.replaceChildren(...(title ? [h('p', {class: 'run-title'}, title)] : []), box,
    h('p', {class: 'lead'}, `The peak, ${bytes(report.memory.peak_allocated_bytes)}, is in the ${words(report.memory.peak.phase)}${report.run.gpus > 1 ? ` of rank ${curve.rank}` : ''}, when `, h('code', {}, report.memory.peak.operator), ' asks.'));
  draw_curve(box, curve, {limit: usable_of(report) - (report.needed_bytes - report.memory.peak_reserved_bytes), limit_label: `what ${report.device.name} has for PyTorch`, top});
}

function phases_table(report) {
  const time = report.time?.by_phase ?? {};
  const ran = Object.entries(report.memory.phases).filter(([, phase]) => phase.peak_bytes > 0);  // a call has no backward pass
  const rows = ran.map(([name, phase]) => ({
    class: name === report.memory.peak.phase ? 'peak-row' : null,
    cells: [words(name), {text: bytes(phase.peak_bytes), class: 'number'}, {text: seconds(time[`${name}_seconds`]), class: 'number'}],
  }));
  const parts = [table(['phase', {text: 'largest allocated', class: 'number'}, {text: 'time', class: 'number'}], rows, report.run.infer ? 'Phases of a call' : 'Phases of a step')];
  if (report.stages?.length) {
    parts.push(table(['stage', {text: 'allocated', class: 'number'}, {text: 'reserved', class: 'number'}, 'what makes it smaller'],
      report.stages.map((stage) => ({class: stage.is_largest ? 'peak-row' : null, cells: [words(stage.name), {text: bytes(stage.peak_allocated_bytes), class: 'number'}, {text: bytes(stage.peak_reserved_bytes), class: 'number'}, stage.lowered_by ?? '']})), 'Stages of the job'));
  }
  if (report.ranks?.length > 1) {
    parts.push(table(['ranks', {text: 'allocated', class: 'number'}, {text: 'reserved', class: 'number'}, 'what they hold'],
      report.ranks.map((rank) => ({cells: [rank.name, {text: bytes(rank.peak_allocated_bytes), class: 'number'}, {text: bytes(rank.peak_reserved_bytes), class: 'number'}, rank.holds ?? '']})), 'Ranks that need different memory'));
  }
  return parts;
}

function blocks_table(report) {
  return table([{text: 'of'}, 'asked for by', {text: 'blocks', class: 'number'}, {text: 'each', class: 'number'}, {text: 'together', class: 'number'}],
    (report.memory.contributors ?? []).slice(0, 12).map((each) => ({cells: [
      h('span', {}, h('i', {class: 'swatch', style: `background:${color_of(each.category)}`}), words(each.category)), h('code', {}, each.operator),
      {text: count(each.blocks), class: 'number'}, {text: bytes(each.block_bytes), class: 'number'}, {text: bytes(each.total_bytes), class: 'number'}]})), 'The largest blocks at the peak');
}

function difference_table(one, two) {
  const rows = [];
  const add = (name, a, b, how = (value) => value ?? '–') => {
    if (JSON.stringify(a) === JSON.stringify(b)) return;
    const gap = typeof a === 'number' && typeof b === 'number' && how === bytes ? `${b > a ? '+' : '−'}${bytes(Math.abs(b - a))}` : '';
    rows.push({cells: [name, {text: how(a), class: 'number'}, {text: how(b), class: 'number'}, {text: gap, class: 'number'}]});
  };
  const a = one.report, b = two.report, text = (value) => value === undefined ? '–' : Array.isArray(value) ? value.join(', ') : without_folders(String(value));
  for (const key of new Set([...Object.keys(a.run), ...Object.keys(b.run)])) add(words(key), a.run[key], b.run[key], text);
  add('needed', a.needed_bytes, b.needed_bytes, bytes);
  add('allocated at the peak', a.memory.peak_allocated_bytes, b.memory.peak_allocated_bytes, bytes);
  for (const key of Object.keys(a.memory.categories)) add(words(key), a.memory.categories[key], b.memory.categories[key], bytes);
  add('a step', a.time?.step_seconds, b.time?.step_seconds, seconds);
  return rows.length ? table(['', {text: 'A', class: 'number'}, {text: 'B', class: 'number'}, {text: 'B less A', class: 'number'}], rows, 'What differs between the two runs') : h('p', {}, 'Nothing: both runs are the same.');
}

/// `answers`: of one run or two; `active`: the one that the sections below are about.
export function show_answers(answers, active) {
  const two = answers.length === 2;
  const titles = two ? ['A', 'B'] : [null];
  document.body.classList.toggle('two', two);
  $('verdicts').replaceChildren(...answers.map((answer, i) => verdict_card(answer, titles[i] && `Run ${titles[i]}`)));
  const scale = Math.max(...answers.map(({report}) => Math.max(report.needed_bytes, usable_of(report) < 3 * report.needed_bytes ? usable_of(report) : 0))) * 1.01;
  $('bars').replaceChildren(...answers.map(({report}, i) => bar(report, scale, titles[i] && `Run ${titles[i]}`)));

  const places = answers.map(() => h('div', {class: 'curve-place'}));
  $('curves').replaceChildren(...places);
  const tops = answers.filter(({curve}) => curve).map(({curve, report}) => top_of(curve, usable_of(report)));
  answers.forEach((answer, i) => show_curve(places[i], answer, two && tops.length ? Math.max(...tops) : undefined, titles[i] && `Run ${titles[i]}`));

  const shown = answers[active] ?? answers[0];
  $('mini').className = shown.report.verdict;  // on a phone, where the controls hide the answer
  $('mini').textContent = `${VERDICTS[shown.report.verdict]}: ${bytes(shown.report.needed_bytes)} of ${bytes(usable_of(shown.report))}`;

  $('difference-section').hidden = !two;
  if (two) $('difference').replaceChildren(difference_table(...answers));
  const {report} = shown;
  $('phases').replaceChildren(...phases_table(report));
  $('blocks').replaceChildren(blocks_table(report));
  $('assumed').replaceChildren(
    h('ul', {}, report.assumptions.map((each) => h('li', {}, without_folders(each)))),
    h('h3', {}, 'Not in the numbers'), h('ul', {}, report.not_modelled.map((each) => h('li', {}, each))));
}
