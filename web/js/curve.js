// The memory of one step as stacked areas (SVG), from the columns that memcalc writes (report/step_curve.h). It stands
// alone: a notebook draws the same with draw_curve(element, curve, {limit, limit_label, top}).
import {bytes, h, svg, words} from './format.js';

// Okabe and Ito's colours, which colour-blind people can tell apart, and four more; the order of docs/categories.md.
const COLORS = {
  weights: '#0072b2', autocast_copies: '#56b4e9', gradients: '#e69f00', optimizer_states: '#009e73',
  activations: '#cc79a7', temporaries: '#d55e00', inputs: '#f0e442', workspaces: '#8c6bb1', gathered_weights: '#8c510a',
  communication: '#80cdc1', kv_cache: '#b3de69', allocator_slack: '#c4c4c4', reserved_not_allocated: '#a6a6a6',
  beside_pytorch: '#7d7d7d', free: 'transparent',
};
export const color_of = (category) => COLORS[category] ?? '#999';

const LEFT = 62, TOP = 40, BOTTOM = 26, RIGHT = 10;
const PHASES = {zero: 'zero grad', del: 'delete', forward: 'forward', backward: 'backward', optimizer: 'optimizer'};

function round_step(top) {
  const unit = top >= 2 ** 30 ? 2 ** 30 : 2 ** 20;
  for (let step = unit / 4; ; step *= 2) {
    for (const times of [1, 1.25, 2]) {
      if (top / (step * times) <= 6) return step * times;
    }
  }
}

/// The largest value of the axis: the card's memory where it is near, else what is reserved.
export function top_of(curve, limit) {
  const most = Math.max(...curve.reserved_bytes, 1);
  return limit && limit < 2.2 * most ? Math.max(limit, most) * 1.04 : most * 1.08;
}

export function draw_curve(element, curve, {limit = null, limit_label = '', top = top_of(curve, limit), title = 'Memory of one step'} = {}) {
  const width = Math.max(300, Math.round(element.clientWidth || 720)), height = width < 520 ? 270 : 330;
  const names = Object.keys(curve.categories);
  const points = curve.reserved_bytes.length;
  const total = Array(points).fill(0);
  const x = (i) => LEFT + (points < 2 ? 0.5 : i / (points - 1)) * (width - LEFT - RIGHT);
  const y = (value) => height - BOTTOM - Math.min(1, value / top) * (height - TOP - BOTTOM);
  const place = (i, value) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`;

  const areas = names.map((name) => {
    const below = total.map((value, i) => place(i, value)).reverse();
    curve.categories[name].forEach((value, i) => { total[i] += value; });
    return svg('polygon', {points: [...total.map((value, i) => place(i, value)), ...below].join(' '), fill: color_of(name)});
  });
  const peak_bytes = total[curve.peak];
  const peak_name = curve.operators[curve.operator[curve.peak]];
  const phase_of = (i) => curve.phases.findLast((each) => i >= each.first && i <= each.last)?.name ?? '';

  const ticks = [];
  const step = round_step(top);
  for (let value = 0; value <= top; value += step) {
    ticks.push(svg('line', {x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), class: 'grid'}));
    ticks.push(svg('text', {x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end'}, bytes(value).replace(/\.0+ /, ' ').replace('0 B', '0')));
  }
  const phases = curve.phases.flatMap(({name, first, last}) => {
    const left = x(first), right = x(last), label = PHASES[name] ?? words(name);
    return [
      svg('line', {x1: left, x2: left, y1: TOP - 14, y2: height - BOTTOM, class: 'phase'}),
      right - left > 6.5 * label.length ? svg('text', {x: (left + right) / 2, y: TOP - 6, 'text-anchor': 'middle', class: 'phase-name'}, label) : null,
    ];
  });
  const label = `peak ${bytes(peak_bytes)} in ${phase_of(curve.peak)}`;
  // Its text stands where there is room for it, at about 7.9 units a letter, and beside the point where the line of what is
  // reserved would cut it.
  const peak_x = x(curve.peak), label_width = 7.9 * label.length;
  const right_of = peak_x + 10 + label_width < width - RIGHT, left_of = peak_x - 10 - label_width > LEFT;
  const label_x = right_of ? peak_x + 10 : left_of ? peak_x - 10 : width - RIGHT;
  const above = Math.max(TOP + 11, y(peak_bytes) - 8);
  const is_cut = Math.abs(y(curve.reserved_bytes[curve.peak]) - above + 4) < 9;
  const label_y = !is_cut ? above : y(peak_bytes) + (right_of || left_of ? 5 : 20);
  const peak = [
    svg('line', {x1: peak_x, x2: peak_x, y1: y(peak_bytes), y2: height - BOTTOM, class: 'peak-line'}),
    svg('circle', {cx: peak_x, cy: y(peak_bytes), r: 4.5, class: 'peak'}),
    svg('text', {x: label_x, y: label_y, 'text-anchor': right_of ? 'start' : 'end', class: 'peak-name'}, label),
  ];
  // Above its line, else under it: where neither the phases' names nor the peak's stand.
  const limit_y = [-5, 14, 28].map((below) => y(limit ?? 0) + below)
    .find((at) => [TOP - 6, label_y].every((other) => Math.abs(at - other) >= 12)) ?? y(limit ?? 0) - 5;
  const line = limit && limit <= top ? [
    svg('line', {x1: LEFT, x2: width - RIGHT, y1: y(limit), y2: y(limit), class: 'limit'}),
    svg('text', {x: right_of ? width - RIGHT - 4 : LEFT + 4, y: limit_y, 'text-anchor': right_of ? 'end' : 'start', class: 'limit-name'}, limit_label),
  ] : [];
  const reserved = svg('polyline', {points: curve.reserved_bytes.map((value, i) => place(i, value)).join(' '), class: 'reserved'});
  const cursor = svg('line', {x1: 0, x2: 0, y1: TOP - 14, y2: height - BOTTOM, class: 'cursor', visibility: 'hidden'});
  const summary = `${title}: ${label}, when ${peak_name} asks. ` + curve.phases.map(({name, first, last}) =>
    `${PHASES[name] ?? name} up to ${bytes(Math.max(...total.slice(first, last + 1)))}`).join(', ') + '.';

  const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', tabindex: '0', 'aria-label': `${summary} Arrow keys read it point by point.`, class: 'curve'},
    ticks, areas, phases, reserved, line, peak, cursor,
    svg('text', {x: (LEFT + width - RIGHT) / 2, y: height - 7, 'text-anchor': 'middle'}, `${curve.events.toLocaleString('en')} allocations and frees of one step, in order`));
  const reading = h('div', {class: 'reading', 'aria-live': 'polite'});
  let at = curve.peak;

  const show = (i) => {
    at = Math.max(0, Math.min(points - 1, i));
    cursor.setAttribute('x1', x(at));
    cursor.setAttribute('x2', x(at));
    cursor.setAttribute('visibility', 'visible');
    const shares = names.map((name) => [name, curve.categories[name][at]]).filter(([, value]) => value > 0).reverse();
    reading.replaceChildren(
      h('span', {}, h('b', {}, bytes(total[at])), ` ${PHASES[phase_of(at)] ?? phase_of(at)}: ${curve.operators[curve.operator[at]]}`),
      ...shares.map(([name, value]) => h('span', {class: 'share'}, h('i', {class: 'swatch', style: `background:${color_of(name)}`}), `${words(name)} ${bytes(value)}`)));
  };
  picture.addEventListener('pointermove', (event) => {
    const box = picture.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width * width - LEFT) / (width - LEFT - RIGHT);
    show(Math.round(share * (points - 1)));
  });
  picture.addEventListener('keydown', (event) => {
    const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20}[event.key];
    const to = event.key === 'Home' ? 0 : event.key === 'End' ? points - 1 : event.key === 'Enter' ? curve.peak : by === undefined ? null : at + by;
    if (to === null) return;
    event.preventDefault();
    show(to);
  });
  show(curve.peak);
  cursor.setAttribute('visibility', 'hidden');
  element.replaceChildren(picture, reading);
  return summary;
}
